"""Category columns: one 0/1 column for every category seen on train rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mtlens.arrays import FloatArray, IntArray
from mtlens.features.state import State
from mtlens.features.views import View

OTHER = "(other)"


class CategoryColumn:
    """One-hot coding of one column, centred on its train shares, never scaled.

    Categories are those of the train rows, the most frequent ``most`` of them, ties by spelling; the rest share the
    column ``(other)``. A missing value is a category like any other. A category never seen in training goes to
    ``(other)`` where that exists and has no 1 anywhere else.
    """

    def __init__(self, column: str, *, most: int, scale: bool, drop_constant: bool) -> None:
        self.column = column
        self.most, self.scale, self.drop_constant = most, scale, drop_constant
        self.categories: tuple[str, ...] = ()
        self.has_other = False
        self.share: FloatArray = np.empty(0)
        self.found: tuple[str, ...] = ()

    def fit(self, views: Sequence[View]) -> CategoryColumn:
        counts: Counter[str] = Counter()
        for view in views:
            counts.update(view.labels(self.column))
        ranked = sorted(counts, key=lambda label: (-counts[label], label))
        self.has_other = len(ranked) > self.most
        self.categories = tuple(sorted(ranked[: self.most]))
        total = sum(counts.values())
        shares = [counts[label] / total for label in self.categories]
        self.share = np.array([*shares, 1 - sum(shares)] if self.has_other else shares)
        if self.has_other:
            rest = len(ranked) - self.most
            self.found = (f"{self.column}: its {rest} rarest of {len(ranked)} categories share one column",)
        if self.drop_constant and len(ranked) == 1:
            self.found = (f"dropped, as it never varies on train rows: {self.column}",)
            self.categories, self.share = (), np.empty(0)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        shown = (*self.categories, OTHER) if self.has_other else self.categories
        return tuple(f"{self.column}={category}" for category in shown)

    def codes(self, labels: Sequence[str]) -> IntArray:
        """Place of each label among the columns, -1 for a category with none."""
        place = {label: i for i, label in enumerate(self.categories)}
        rest = len(self.categories) if self.has_other else -1
        return np.array([place.get(label, rest) for label in labels], dtype=np.int64)

    def write(self, view: View, out: FloatArray) -> None:
        codes = self.codes(view.labels(self.column))
        out[:] = 0.0
        seen = np.flatnonzero(codes >= 0)
        out[seen, codes[seen]] = 1.0
        if self.scale:
            out -= self.share

    def state(self) -> State:
        settings = {"most": self.most, "scale": self.scale, "drop_constant": self.drop_constant}
        meta = {"column": self.column, "settings": settings, "categories": list(self.categories)}
        return State({"share": self.share}, {**meta, "has_other": self.has_other, "found": list(self.found)})

    @classmethod
    def from_state(cls, state: State) -> CategoryColumn:
        new = cls(state.meta["column"], **state.meta["settings"])
        new.categories, new.has_other = tuple(state.meta["categories"]), state.meta["has_other"]
        new.share, new.found = state.arrays["share"], tuple(state.meta["found"])
        return new
