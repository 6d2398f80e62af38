"""File names from any text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

_LONGEST = 60


def slug(name: str) -> str:
    """A name of lower-case letters, digits, dashes and underscores that is safe as a file name everywhere.

    Accents are dropped. A name that loses anything else ends in a short hash of the whole, so different names
    practically never share a slug (:func:`slugs` makes sure).

    >>> slug("reviews"), slug("Café_2")
    ('reviews', 'cafe_2')
    >>> slug("../etc/<script>") != slug(".. etc script")
    True
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    kept = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-")[:_LONGEST]
    unchanged = kept == plain and kept not in _RESERVED and plain.casefold() == _without_accents(name)
    return kept if unchanged else f"{kept or 'task'}-{_hash(name)}"


_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


def _without_accents(name: str) -> str:
    spread = unicodedata.normalize("NFKD", name)
    return "".join(letter for letter in spread if not unicodedata.combining(letter)).casefold()


def _hash(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A slug of its own for every name, in order: a repeated one gets a number.

    >>> slugs(["mr", "MR"])
    {'mr': 'mr', 'MR': 'mr-2'}
    """
    made: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = own = slug(name)
        count = 1
        while own in taken:
            count += 1
            own = f"{base}-{count}"
        taken.add(own)
        made[name] = own
    return made
