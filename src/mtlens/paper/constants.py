"""What a constant of a study may be: checked in one place, however it was given."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mtlens.errors import InputError, unknown

# Allowed ranges by name, for every study that has such a constant. Whole numbers not listed are at least 1.
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("seed", "valid_rows", "test_rows", "train_rows", "problems", "starts", "workers"), (0, inf)),
    **dict.fromkeys(("d", "folds", "widths"), (2, inf)),
    **dict.fromkeys(("noise", "noise1", "noise2", "units"), (0, inf)),
    **dict.fromkeys(("clean_noise", "at_noise", "rate", "lr", "lrs", "extra_lrs"), (1e-12, inf)),
    **dict.fromkeys(("alphas", "shares", "sine", "sines"), (0, 1)),
    **dict.fromkeys(("cosine", "cosines"), (-1, 1)),
    **dict.fromkeys(("kappa", "kappas"), (1, 1e6)),  # beyond, the covariance has no inverse in float64
    "shrinks": (1e-12, 1),
    "mild_ratio": (1.0000001, inf),
}
# Axes of a figure: claims compare their ends, or say which way a curve goes.
_AXES = ("source_rows", "cosines", "alphas", "widths", "kappas", "sines")
_KINDS = {int: "a whole number", float: "a number", str: "a text"}


def checked(settings: Any, key: str, value: Any, where: str) -> Any:
    """A new value for a field of ``settings``, in the form of the present one, or an error that says what is needed.

    A number alone is a list of one, a whole number may be real.
    """
    present, hint = getattr(settings, key), get_type_hints(type(settings))[key]
    if isinstance(present, tuple):
        values = value if isinstance(value, tuple | list) else (value,)
        if not values:
            raise InputError(f"{where}: {key} needs at least one value.")
        found = tuple(_one(key, present[0], one, hint, where) for one in values)
        _refuse_repeated(key, found, where)
        return found
    return _one(key, present, value, hint, where)


def needs(true: bool, sentence: str) -> None:
    """What constants need of each other, for the ``__post_init__`` of settings."""
    if not true:
        raise InputError(sentence)


def needs_test_rows(count: int) -> None:
    """Scores of a synthetic study are rank correlations and accuracies: of two rows they say all or nothing."""
    needs(count >= 3, f"test_rows must be at least 3, for scores that can differ, found {count}.")


def _one(key: str, present: Any, value: Any, hint: Any, where: str) -> Any:
    if isinstance(present, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(present):
        kind = _KINDS.get(type(present), "a value like it")
        raise InputError(f"{where}: {key} must be {kind} (as {present!r}), found {value!r}.")
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise unknown("value", value, get_args(hint), f"{where}, {key}")
    if isinstance(value, int | float):
        _refuse_out_of_range(key, value, where)
    return value


def _refuse_repeated(key: str, values: tuple[Any, ...], where: str) -> None:
    """A value given twice would count every seed twice; an axis of one value leaves its claims nothing to compare."""
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise InputError(
            f"{where}: {key} holds {twice} twice, which would count its draws twice. Give each value once."
        )
    if key in _AXES and len(values) < 2:
        raise InputError(
            f"{where}: {key} has the one value {values[0]}, but claims compare its smallest and its largest. "
            "Give at least two."
        )


def _refuse_out_of_range(key: str, value: float, where: str) -> None:
    low, high = _RANGES.get(key, (1, inf) if isinstance(value, int) else (-inf, inf))
    if isfinite(value) and low <= value <= high:
        return
    least = "above 0" if low == 1e-12 else f"at least {low:g}"
    needed = f"between {low:g} and {high:g}" if isfinite(high) else least if isfinite(low) else "finite"
    raise InputError(f"{where}: {key} must be {needed}, found {value}.")
