"""A table of numbers, categories and texts to one float matrix, fitted on train rows only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mtlens.arrays import Array, FloatArray
from mtlens.errors import InputError
from mtlens.features.categories import CategoryColumn
from mtlens.features.numbers import NumberColumns
from mtlens.features.state import State, nested
from mtlens.features.texts import Pairs, TextColumns, TextEncoder
from mtlens.features.tfidf import TfIdf
from mtlens.features.views import Match, View, common_kinds
from mtlens.tasks.table import ColumnKind


class _Block(Protocol):
    """Some input columns and what becomes of them."""

    found: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]: ...

    def write(self, view: View, out: FloatArray) -> None: ...

    def state(self) -> State: ...


class Featurizer:
    """Raw inputs to ``(rows, width)`` floats.

    Numbers are filled, marked, standardised (:class:`NumberColumns`), categories coded one-hot
    (:class:`CategoryColumn`), text columns encoded together (:class:`TextColumns`). Everything that is learned is
    learned from the rows given to :meth:`fit`: changing any other row changes nothing about these. A number array is
    a table of number columns; an array of rank above two (images) passes through as it is, NaN refused.

    Args:
        scale: centre and standardise. False leaves units as they are.
        drop_constant: leave out columns that do not vary on train rows. With ``indicators=False`` too, a number
            array keeps its width, as a module with a fixed input width needs.
        indicators: add a 0/1 column for each number column with missing train values.
        max_categories: most columns a category column may become, before ``(other)``.
        text: how text columns become numbers; :class:`TfIdf` when None.
        pairs: what two text columns mean, see :class:`TextColumns`.

    Attributes:
        names: of the output columns. width: how many. found: lines that say what was done to the data.

    Example:
        >>> table = {"age": [30.0, np.nan, 50.0, 1e9], "city": ["Rome", "Oslo", "Rome", "Bern"]}
        >>> features = Featurizer().fit(table, rows=[0, 1, 2])
        >>> features.names
        ('age', 'age is missing', 'city=Oslo', 'city=Rome')
        >>> features.transform(table)[:3].round(2).tolist()
        [[-1.22, -0.33, -0.33, 0.33], [0.0, 0.67, 0.67, -0.67], [1.22, -0.33, -0.33, 0.33]]
    """

    def __init__(
        self,
        *,
        scale: bool = True,
        drop_constant: bool = True,
        indicators: bool = True,
        max_categories: int = 100,
        text: TextEncoder | None = None,
        pairs: Pairs = "auto",
    ) -> None:
        if max_categories < 1:
            raise InputError(f"max_categories must be at least 1, found {max_categories}.")
        self.scale, self.drop_constant, self.indicators = scale, drop_constant, indicators
        self.max_categories = max_categories
        self.text = text
        self.pairs: Pairs = pairs
        self.blocks: list[Any] = []
        self.left_out: tuple[str, ...] = ()
        self.shape: tuple[int, ...] | None = None  # of a row that passes through

    def fit(self, X: Any, rows: Any = None) -> Featurizer:
        """Learn from the given rows of one input (a task, array, table, data frame or list of texts); None = all."""
        return self.fit_views([View.of(X, rows)])

    def fit_views(self, views: Sequence[View], *, match: Match = "same") -> Featurizer:
        """Learn from several inputs with the same columns; they are taken in the first one's order.

        With ``match="common"`` columns that some input lacks are left out, otherwise they are refused.
        """
        for view in views:
            if view.num_rows == 0:
                raise InputError(f"{view.where} has no train rows to fit features on. Give its train split some rows.")
        self.blocks, self.shape, self.left_out = [], _common_shape(views), ()
        if self.shape is not None:
            return self
        kinds, self.left_out = common_kinds(views, match)
        self.blocks = self._new_blocks(kinds)
        for block in self.blocks:
            block.fit(views)
        if self.width == 0:
            raise InputError(
                f"{views[0].where}: none of its {len(kinds)} columns varies on train rows. Add informative ones."
            )
        return self

    def _new_blocks(self, kinds: Mapping[str, ColumnKind]) -> list[Any]:
        of_kind = {kind: [name for name, k in kinds.items() if k == kind] for kind in ("number", "category", "text")}
        options = {"scale": self.scale, "drop_constant": self.drop_constant}
        blocks: list[Any] = []
        if of_kind["number"]:
            blocks.append(NumberColumns(of_kind["number"], indicators=self.indicators, **options))
        blocks += [CategoryColumn(name, most=self.max_categories, **options) for name in of_kind["category"]]
        if of_kind["text"]:
            blocks.append(TextColumns(of_kind["text"], self.text or TfIdf(), pairs=self.pairs, scale=self.scale))
        return blocks

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def width(self) -> int:
        """Columns of the output; for inputs that pass through, entries of a row."""
        return int(np.prod(self.shape)) if self.shape is not None else sum(len(block.names) for block in self.blocks)

    @property
    def found(self) -> tuple[str, ...]:
        return (*self.left_out, *(line for block in self.blocks for line in block.found))

    def transform(self, X: Any, *, dtype: npt.DTypeLike = np.float64) -> Array:
        """``(rows, width)`` of the given dtype for a task or any inputs with the fitted columns; others are ignored."""
        view = View.of(X)
        if self.shape is not None:
            return self._pass_through(view, dtype)
        if not self.blocks:
            raise InputError("this Featurizer is not fitted. Call fit on train rows first.")
        view = self._matched(view)
        out: Array = np.empty((len(view.X), self.width), dtype=dtype)
        place = 0
        for block in self.blocks:
            count = len(block.names)
            block.write(view, out[:, place : place + count])
            place += count
        return out

    def _pass_through(self, view: View, dtype: npt.DTypeLike) -> Array:
        X = view.X
        if not isinstance(X, np.ndarray) or view.row_shape != self.shape:
            found = X.shape[1:] if isinstance(X, np.ndarray) else "columns"
            raise InputError(
                f"{view.where}: rows have shape {found}, these features were fitted on {self.shape}. Bring them to it."
            )
        if X.dtype.kind == "f" and np.isnan(X).any():
            raise InputError(
                f"{view.where}: arrays of rank {X.ndim} pass through and must not hold NaN. Fill it first."
            )
        return X.astype(dtype, copy=False)

    def _matched(self, view: View) -> View:
        """The view with every fitted column found in it; a bare array is matched by place."""
        wanted = [name for block in self.blocks for name in _inputs_of(block)]
        if view.is_nameless and len(view.names) == len(wanted):
            return View(view.X, tuple(wanted), view.rows, view.where)
        if (
            not self.left_out
            and view.is_nameless
            and len(view.names) > len(wanted) == len(set(wanted) & set(view.places))
        ):
            raise InputError(
                f"{view.where} has {len(view.names)} columns without names, but these features were fitted on "
                f"{len(wanted)}. Give it the same columns, or name them."
            )
        missing = [name for name in wanted if name not in view.places]
        if missing:
            raise InputError(
                f"{view.where} lacks {len(missing)} of the {len(wanted)} columns these features were fitted on: "
                f"{', '.join(missing[:10])}. It has: {', '.join(view.names[:10]) or 'none'}. Give it those columns."
            )
        return view

    def state(self) -> State:
        """Everything :meth:`transform` needs, as arrays and JSON."""
        parts = {f"block_{i}": block.state() for i, block in enumerate(self.blocks)}
        return nested(
            parts,
            **{"class": "Featurizer", "blocks": [type(block).__name__ for block in self.blocks]},
            shape=None if self.shape is None else list(self.shape),
            left_out=list(self.left_out),
            settings=self._settings(),
        )

    def _settings(self) -> dict[str, Any]:
        names = ("scale", "drop_constant", "indicators", "max_categories", "pairs")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: State, *, encoder: TextEncoder | None = None) -> Featurizer:
        """The fitted featurizer; ``encoder`` stands in for a frozen encoder that has moved since it was saved."""
        new = cls(**state.meta["settings"])
        shape = state.meta["shape"]
        new.shape, new.left_out = None if shape is None else tuple(shape), tuple(state.meta["left_out"])
        for i, kind in enumerate(state.meta["blocks"]):
            part = state.part(f"block_{i}")
            new.blocks.append(
                TextColumns.from_state(part, encoder) if kind == "TextColumns" else _BLOCKS[kind].from_state(part)
            )
        return new


_BLOCKS: dict[str, Any] = {"NumberColumns": NumberColumns, "CategoryColumn": CategoryColumn}


def _common_shape(views: Sequence[View]) -> tuple[int, ...] | None:
    """Shape of a row when the inputs pass through; refused when they differ."""
    shapes = {view.row_shape for view in views}
    if len(shapes) > 1:
        shown = ", ".join(f"{view.where} has rows of {view.row_shape or 'columns'}" for view in views[:6])
        raise InputError(f"a shared trunk needs one feature space, but {shown}. Bring them to one shape first.")
    return shapes.pop()


def _inputs_of(block: _Block) -> tuple[str, ...]:
    """Names of the columns a block reads; text blocks read whatever text columns there are."""
    if isinstance(block, NumberColumns):
        return block.columns
    return (block.column,) if isinstance(block, CategoryColumn) else ()
