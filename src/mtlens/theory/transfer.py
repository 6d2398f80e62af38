"""Linear transfer: what a target gains when its ridge model is fitted together with other tasks, by cross-validation.

One core for every closed-form joint cross-validation: ``diagnosis`` predicts with it, ``study`` uses it as the linear
family and for screening. The rows are read once, into moments per fold (``folded``); every model after that costs
small matrices only (``joint_ridge``). Both sides of each comparison, alone and joint, search *one* grid of ridges.

What it does not tell: the transfer between networks. It is the transfer between linear models on these inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import stdtr, stdtrit

from mtlens.arrays import Array, BoolArray, FloatArray, IntArray
from mtlens.errors import InputError, unknown
from mtlens.theory import joint_ridge
from mtlens.theory.folded import Moments, assign_folds, check_folds, input_moments, output_moments
from mtlens.theory.inputs import whole_seed
from mtlens.theory.linear_problem import LinearProblem as LinearProblem
from mtlens.theory.linear_problem import input_groups, near_mean, row_keys
from mtlens.theory.standardised import Standard, View, standardised
from mtlens.theory.transfer_records import Alone, PairTable, Transfer
from mtlens.theory.transfer_records import LinearModel as LinearModel

Method: TypeAlias = Literal["joint", "shrink"]
METHODS: tuple[Method, ...] = ("joint", "shrink")
# multiples of the width d: the best ridge grows with d, not with m
RIDGES = tuple(10.0**power for power in range(-4, 4))
WEIGHTS = (0.1, 1.0, 10.0)  # a source row counts this much of a target row
LEVEL = 0.95  # of every interval here
KEPT_VIEWS = 2**28  # bytes of standardised moments kept rather than computed again


class LinearTransfer:
    """Folded moments of some tasks in one input space, and every closed-form fit on them.

    Inputs are centred by each task's own training mean (which fits an intercept a task) and scaled by one standard
    deviation a column, the geometric mean over tasks; labels are centred and scaled a task, with standard deviations
    shrunk to a common one as far as they agree (empirical Bayes). All of it from training rows only, fold by fold.

    A fold leaves its rows out of *every* task, so shared inputs and groups across tasks never leak.

    Args:
        problems: with distinct names and one width.
        folds: how many, or one array of fold ids a problem (-1: always trained on; a single fold 0 is a validation
            split).
        repeats: how many times the rows are dealt to folds anew; models and memory grow with it, fold noise shrinks.
            ``out_of_fold`` gives the predictions of the first.
        seed: of the folds.
        ridges: multiples of the width; one grid for every model, alone or joint.
        weights: of a source's rows relative to the target's.

    Cost: one pass over the rows; then, for a pair, ``folds * weights * ridges`` solutions of a d x d system, and none
    where tasks share their inputs. Memory ``tasks * folds * d^2`` doubles.
    """

    def __init__(
        self,
        problems: Sequence[LinearProblem],
        *,
        folds: int | Sequence[Array] = 5,
        repeats: int = 1,
        seed: int = 0,
        ridges: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.problems = tuple(problems)
        self.names = tuple(problem.name for problem in self.problems)
        self._check()
        self.width = self.problems[0].X.shape[1]
        self.ridges = _grid(ridges, RIDGES, "ridges") * self.width
        self.weights = _grid(weights, WEIGHTS, "weights")
        seed = whole_seed(seed, "linear transfer")
        self.repeats = [self._folds(folds, seed + 1000 * repeat) for repeat in range(self._repeats(folds, repeats))]
        self.fold_of = self.repeats[0]
        self.folds_a_repeat = int(max(fold.max() for fold in self.fold_of)) + 1
        self.num_folds = self.folds_a_repeat * len(self.repeats)
        self.sharing = input_groups(self.problems)
        self._origins = [near_mean(p.X) for p in self.problems]
        self._held, self._always = self._read()
        self._total = self._always
        for f in range(self.folds_a_repeat):
            self._total = Moments.combined(self._total, [held[f] for held in self._held], 1, self.sharing)
        self._views: dict[int | None, View] = {}
        self._guide_losses: dict[tuple[int, ...], FloatArray] = {}
        self._kept_losses: dict[tuple[int, tuple[int, ...], str], FloatArray] = {}

    def _check(self) -> None:
        if not self.problems:
            raise InputError("linear transfer needs at least one problem, found none.")
        if len(set(self.names)) < len(self.names):
            raise InputError(
                f"linear transfer: names repeat among {list(self.names)[:20]}. Give each a name of its own."
            )
        widths = {p.name: p.X.shape[1] for p in self.problems}
        if len(set(widths.values())) > 1:
            shown = ", ".join(f"{name!r} has {width} columns" for name, width in list(widths.items())[:6])
            raise InputError(f"linear transfer needs one input space: {shown}. Featurise all tasks together first.")

    def _repeats(self, folds: int | Sequence[Array], repeats: int) -> int:
        if repeats < 1 or (repeats > 1 and not isinstance(folds, int)):
            raise InputError(f"repeats={repeats} needs folds as a number; with folds given a row there is one repeat.")
        return repeats

    def _folds(self, folds: int | Sequence[Array], seed: int) -> list[IntArray]:
        sizes = [len(p.X) for p in self.problems]
        if not isinstance(folds, int):
            return check_folds(folds, sizes, self.names)
        fewest = min((int(p.labelled.sum()), p.name) for p in self.problems)
        if not 2 <= folds <= fewest[0]:
            can = f"Use 2 <= folds <= {fewest[0]}, or leave" if fewest[0] >= 2 else "Give it more, or leave"
            rows = f"{fewest[0]} labelled row{'s' * (fewest[0] != 1)}"
            raise InputError(f"folds={folds}: task {fewest[1]!r} has {rows}. {can} that task out.")
        classes = [p.y if p.kind != "regression" else None for p in self.problems]
        masks = [p.labelled for p in self.problems]
        return assign_folds(row_keys(self.problems), masks, classes, folds=folds, seed=seed)

    def _read(self) -> tuple[list[list[Moments]], list[Moments]]:
        """The one pass over the rows (one a repeat): moments a fold, and of the rows that are always trained on."""
        held: list[list[Moments]] = []
        always: list[Moments] = []
        inputs: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = {}
        for i in range(len(self.problems)):
            always.append(self._moments(i, self.fold_of[i] == -1, -1, inputs))
            held.append(
                [
                    self._moments(i, repeat[i] == f, r * self.folds_a_repeat + f, inputs)
                    for r, repeat in enumerate(self.repeats)
                    for f in range(self.folds_a_repeat)
                ]
            )
        return held, always

    def _moments(
        self, i: int, chosen: Array, f: int, inputs: dict[tuple[int, int], tuple[FloatArray, FloatArray]]
    ) -> Moments:
        """Moments of the chosen labelled rows of task ``i``; those of its inputs are kept for tasks that share them."""
        problem, origin, key = self.problems[i], self._origins[i], (self.sharing[i], f)
        rows = np.flatnonzero(chosen & problem.labelled)
        if key not in inputs:
            inputs[key] = input_moments(problem.X, rows, problem.weight, origin)
        sum_x, xx = inputs[key]
        mass, sum_y, xy, yy = output_moments(problem.X, problem.outputs, rows, problem.weight, origin)
        return Moments(len(rows), mass, sum_x, sum_y, xx, xy, yy)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise unknown("task", name, self.names)
        return self.names.index(name)

    def second_moment(self, name: str, *, center: bool = False) -> FloatArray:
        """(d, d) ``X^T X`` of a task's labelled rows in original units, about its mean when ``center``."""
        i = self._index(name)
        total = self._total[i]
        xx, _, _ = total.about(total.mean_x, total.mean_y)
        mean = self._origins[i] + total.mean_x
        return xx if center else xx + total.mass * np.outer(mean, mean)

    # ------------------------------------------------------------------ one fold, standardised

    def view(self, fold: int | None) -> View:
        """Tasks with ``fold`` left out; None leaves nothing out. Kept when all of them fit in ``KEPT_VIEWS``."""
        if fold in self._views:
            return self._views[fold]
        held = None if fold is None else [folds[fold] for folds in self._held]
        view = standardised(self._total, held, self.sharing, self.names, fold)
        matrices = 2 * (self.num_folds + 1) * len(set(self.sharing))
        if fold is None or matrices * self.width**2 * 8 <= KEPT_VIEWS:
            self._views[fold] = view
        return view

    # ------------------------------------------------------------------ alone

    @cached_property
    def _alone(self) -> tuple[FloatArray, FloatArray]:
        """Held-out squared error (tasks, L, K) of every ridge alone, and that of the training mean (tasks, K)."""
        errors = np.empty((len(self.names), len(self.ridges), self.num_folds))
        base = np.empty((len(self.names), self.num_folds))
        for f in range(self.num_folds):
            view = self.view(f)
            for members in _members(view.sharing):
                values, vectors = view.eigen(members[0])
                for i in members:
                    task = view.tasks[i]
                    W = vectors @ joint_ridge.ridge_path(values, vectors.T @ task.c, self.ridges)
                    loss = joint_ridge.squared_error(W, task.hold_xx, task.hold_xy, task.hold_yy)
                    errors[i, :, f] = loss * task.scale_y**2
                    base[i, f] = task.hold_yy * task.scale_y**2
        return errors, base

    def tuned(self, i: int, view: View) -> FloatArray:
        """(d, q) tuned ridge solution of task number ``i`` in a view, in standardised units."""
        return _solved(view.tasks[i].G, view.tasks[i].c, self.alone(self.names[i]).ridge)

    def base_losses(self) -> FloatArray:
        """(tasks, K): held-out squared error of the training mean, what every R2 here is relative to."""
        return self._alone[1]

    def alone(self, target: str) -> Alone:
        """The tuned ridge of one task: its out-of-fold score (each fold tuned on the others) and ridge."""
        i = self._index(target)
        errors, base = self._alone
        loss, best = self._nested(errors[i])
        share = _shares(loss, base[i])
        return Alone(target, 1.0 - float(share.mean()), 1.0 - share, float(self.ridges[best]))

    # ------------------------------------------------------------------ choosing and comparing

    def _rest(self, losses: FloatArray) -> FloatArray:
        """(cells, K): loss of a cell over the *other* folds of the same repeat; over the fold itself if it is alone."""
        if self.folds_a_repeat == 1:
            return losses
        by_repeat = losses.reshape(len(losses), len(self.repeats), self.folds_a_repeat)
        rest: FloatArray = (by_repeat.sum(axis=2, keepdims=True) - by_repeat).reshape(losses.shape)
        return rest

    def _nested(self, losses: FloatArray) -> tuple[FloatArray, int]:
        """Loss (K,) with each fold's cell chosen by the other folds, and the cell that all folds choose.

        Choosing and scoring on the same folds would flatter the larger grid; this does not.
        """
        chosen = _least(self._rest(losses))
        return losses[chosen, np.arange(losses.shape[1])], int(_least(losses.sum(axis=1)))

    def standard_error(self, folds: FloatArray) -> FloatArray:
        """Standard error of the mean over the last axis, one value a fold: infinite with a single fold.

        Training sets of different folds overlap, so ``1 / folds`` alone is too small: ``test rows / training rows`` is
        added (Nadeau and Bengio 2003; Bouckaert and Frank 2004 for repeats).
        """
        if self.folds_a_repeat == 1:
            return np.full(folds.shape[:-1], np.inf)
        widening = 1.0 / folds.shape[-1] + 1.0 / (self.folds_a_repeat - 1)
        return np.asarray(folds.std(axis=-1, ddof=1) * np.sqrt(widening))

    def _difference(self, alone: FloatArray, joint: FloatArray, base: FloatArray) -> dict[str, FloatArray]:
        """Difference of two losses with a corrected resampled t interval over all folds."""
        folds = _shares(alone, base) - _shares(joint, base) if base.mean() > 0 else np.zeros_like(alone)
        count, mean = len(folds), folds.mean()
        if self.folds_a_repeat == 1:
            unknown_side = {"low": -np.inf, "high": np.inf, "p_helps": 0.5, "p_hurts": 0.5}
            return {"difference": mean, "folds": folds, **{k: np.float64(v) for k, v in unknown_side.items()}}
        error = max(float(self.standard_error(folds)), 1e-12)
        half = float(stdtrit(count - 1, 0.5 + LEVEL / 2)) * error
        helps = stdtr(count - 1, mean / error)
        interval = {"low": mean - half, "high": mean + half}
        return {"difference": mean, "folds": folds, **interval, "p_helps": helps, "p_hurts": 1 - helps}

    # ------------------------------------------------------------------ pairs

    def pair(self, target: str, source: str, *, method: Method = "joint") -> Transfer:
        """Transfer from one source to one target."""
        return self.joint(target, (source,), method=method)

    def joint(self, target: str, sources: Sequence[str] | None = None, *, method: Method = "joint") -> Transfer:
        """Transfer to one target from several sources at once (all others when None)."""
        t, chosen = self._target_and_sources(target, sources)
        losses = self._grid_losses(t, chosen, method)
        errors, base = self._alone
        alone, _ = self._nested(errors[t])
        joint, best = self._nested(losses)
        settings = self._settings(method, best)
        numbers = self._difference(alone, joint, base[t])
        score = 1.0 - float(_shares(alone, base[t]).mean())
        return Transfer(
            target, tuple(self.names[s] for s in chosen), **_plain(numbers), folds=numbers["folds"], alone=score,
            joint=score + float(numbers["difference"]), ridge=settings["ridge"], weight=settings.get("weight", np.nan),
        )  # fmt: skip

    def pairs(
        self,
        targets: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> PairTable:
        """Transfer for every ordered pair of the joint method; ``progress(done, of)`` is called a fold.

        Both directions of a pair come from one set of solutions; tasks that share inputs from one eigenbasis.
        """
        rows = [self._index(name) for name in (self.names if targets is None else targets)]
        columns = [self._index(name) for name in (self.names if sources is None else sources)]
        wanted = sorted({(min(t, s), max(t, s)) for t in rows for s in columns if t != s})
        place = {pair: n for n, pair in enumerate(wanted)}
        grid = len(self.weights) * len(self.ridges)
        # losses[n, 0] is that of pair n's first task, [n, 1] of its second; weights run the other way for the second
        losses = np.empty((len(wanted), 2, grid, self.num_folds))
        for f in range(self.num_folds):
            self._pair_losses(self.view(f), wanted, losses[..., f])
            if progress is not None:
                progress(f + 1, self.num_folds)
        errors, base = self._alone
        return self._pair_table(rows, columns, losses, place, errors, base)

    def _pair_table(
        self,
        rows: list[int],
        columns: list[int],
        losses: FloatArray,
        place: dict[tuple[int, int], int],
        errors: FloatArray,
        base: FloatArray,
    ) -> PairTable:
        shape = (len(rows), len(columns))
        table = {
            k: np.full(shape, np.nan) for k in ("difference", "low", "high", "p_helps", "p_hurts", "ridge", "weight")
        }
        folds = np.full((*shape, self.num_folds), np.nan)
        scores = np.empty(len(rows))
        for a, t in enumerate(rows):
            alone, _ = self._nested(errors[t])
            scores[a] = 1.0 - _shares(alone, base[t]).mean()
            for b, s in enumerate(columns):
                if t == s:
                    continue
                joint, best = self._nested(losses[place[min(t, s), max(t, s)], int(t > s)])
                numbers = self._difference(alone, joint, base[t])
                folds[a, b] = numbers.pop("folds")
                for key, value in {**numbers, **self._settings("joint", best)}.items():
                    table[key][a, b] = value
        names = tuple(self.names[t] for t in rows), tuple(self.names[s] for s in columns)
        return PairTable(names[0], names[1], folds=folds, alone=scores, **table)

    def _pair_losses(self, view: View, wanted: list[tuple[int, int]], losses: FloatArray) -> None:
        """Fill ``losses`` (pairs, 2, grid): held-out squared error in original units of both tasks of each pair."""
        by_group = [pair for pair in wanted if view.sharing[pair[0]] == view.sharing[pair[1]]]
        if by_group:
            self._shared_pair_losses(view, wanted, losses)
        single = [n for n, (i, j) in enumerate(wanted) if view.sharing[i] != view.sharing[j]]
        chunk = max(1, int(2**22 / self.width**2))
        for start in range(0, len(single), chunk):
            self._separate_pair_losses(view, [(n, *wanted[n]) for n in single[start : start + chunk]], losses)

    def _separate_pair_losses(self, view: View, pairs: list[tuple[int, int, int]], losses: FloatArray) -> None:
        tasks = view.tasks
        outputs = max(tasks[i].c.shape[1] for _, *both in pairs for i in both)
        first = [tasks[i] for _, i, _ in pairs]
        second = [tasks[j] for _, _, j in pairs]
        G = [np.stack([task.G for task in side]) for side in (first, second)]
        c = [np.stack([_padded(task.c, outputs) for task in side]) for side in (first, second)]
        places = np.array([n for n, _, _ in pairs])
        for beta in np.unique(np.concatenate([self.weights, 1.0 / self.weights]).round(12)):
            root = np.sqrt(beta)
            both = np.concatenate([c[0] / root, c[1] * root], axis=2)
            solved = joint_ridge.solve_ridges(G[0] / root + G[1] * root, both, self.ridges)  # (L, P, d, 2q)
            mine, theirs = solved[..., :outputs], solved[..., outputs:]
            A = joint_ridge.match(np.swapaxes(c[1], 1, 2) @ mine)  # (L, P, q_second, q_first)
            W_first, W_second = mine + theirs @ A, theirs + mine @ np.swapaxes(A, 2, 3)
            for side, members, W, weight in ((0, first, W_first, beta), (1, second, W_second, 1.0 / beta)):
                for b in np.flatnonzero(np.isclose(self.weights, weight)):
                    cells = slice(b * len(self.ridges), (b + 1) * len(self.ridges))
                    losses[places, side, cells] = _errors(members, W).T

    def _shared_pair_losses(self, view: View, wanted: list[tuple[int, int]], losses: FloatArray) -> None:
        """Pairs with the same inputs and rows: one eigenbasis holds every solution, products of q columns suffice."""
        for members in _members(view.sharing):
            pairs = [(n, i, j) for n, (i, j) in enumerate(wanted) if i in members and j in members]
            if not pairs:
                continue
            first = view.tasks[members[0]]
            values, vectors = view.eigen(members[0])
            hold = vectors.T @ first.hold_xx @ vectors
            ends = np.cumsum([0, *(view.tasks[i].c.shape[1] for i in members)])
            columns = {i: slice(ends[n], ends[n + 1]) for n, i in enumerate(members)}
            c = vectors.T @ np.concatenate([view.tasks[i].c for i in members], axis=1)
            hold_xy = vectors.T @ np.concatenate([view.tasks[i].hold_xy for i in members], axis=1)
            for b, beta in enumerate(self.weights):
                root = np.sqrt(beta)
                for r, ridge in enumerate(self.ridges):
                    U = c / (values[:, None] * (root + 1.0 / root) + ridge)
                    products = (U.T @ hold @ U, U.T @ hold_xy, c.T @ U)
                    cell = b * len(self.ridges) + r
                    for n, i, j in pairs:
                        for side, t, s in ((0, i, j), (1, j, i)):
                            task = view.tasks[t]
                            loss = _shared_error(products, columns[t], columns[s], root, task.hold_yy)
                            losses[n, side, cell] = loss * task.scale_y**2

    # ------------------------------------------------------------------ one target, any sources, any method

    def _target_and_sources(self, target: str, sources: Sequence[str] | None) -> tuple[int, list[int]]:
        t = self._index(target)
        chosen = [i for i in range(len(self.names)) if i != t] if sources is None else [self._index(s) for s in sources]
        if t in chosen:
            raise InputError(f"task {target!r} is its own source. Leave it out of sources.")
        if not chosen:
            raise InputError(f"task {target!r} has no source here. Name at least one other task, or use alone().")
        return t, chosen

    def _losses(self, view: View, t: int, sources: list[int], method: Method) -> FloatArray:
        task = view.tasks[t]
        W = self._solutions(view, t, sources, method)
        return joint_ridge.squared_error(W, task.hold_xx, task.hold_xy, task.hold_yy) * task.scale_y**2

    def _solutions(self, view: View, t: int, sources: list[int], method: Method, cell: int | None = None) -> FloatArray:
        """Coefficients (grid, d, q) of a method over its whole grid, or (1, d, q) at one cell; standardised units."""
        blocks = range(self._num_blocks(method, sources))
        ridges = self.ridges
        if cell is not None:
            block, ridge = divmod(cell, len(self.ridges))
            blocks, ridges = range(block, block + 1), self.ridges[ridge : ridge + 1]
        if method == "joint":
            return self._joint_solutions(view, t, sources, blocks, ridges)
        if method == "shrink":
            return self._shrunk_solutions(view, t, sources, blocks, ridges)
        raise unknown("method", method, METHODS)

    def _num_blocks(self, method: Method, sources: list[int]) -> int:
        """How many settings beside the ridge a method tries."""
        return len(self.weights) if method == "joint" else 1 + len(self._slopes(sources))

    def _joint_solutions(self, view: View, t: int, sources: list[int], blocks: range, ridges: FloatArray) -> FloatArray:
        task = view.tasks[t]
        G, c = _merged(view, t, sources, float(np.median(self.ridges)))
        shared = len({view.sharing[i] for i in (t, *sources)}) == 1
        found = []
        for beta in self.weights[blocks.start : blocks.stop]:
            root = np.sqrt(beta)
            both = np.concatenate([task.c / root, c * root], axis=1)
            if shared:  # every matrix is a multiple of the target's: one eigenbasis serves all
                values, vectors = view.eigen(t)
                multiple = 1.0 / root + root * len(sources)
                solved = vectors @ joint_ridge.ridge_path(multiple * values, vectors.T @ both, ridges)
            else:
                solved = joint_ridge.solve_ridges((task.G / root + G * root)[None], both[None], ridges)[:, 0]
            mine, theirs = solved[..., : task.c.shape[1]], solved[..., task.c.shape[1] :]
            found.append(mine + theirs @ joint_ridge.match(c.T @ mine))
        return np.concatenate(found)

    def _shrunk_solutions(
        self, view: View, t: int, sources: list[int], blocks: range, ridges: FloatArray
    ) -> FloatArray:
        """Own ridge towards the sources' solution: as an offset, and along its directions with less or no penalty."""
        task = view.tasks[t]
        G, c = _merged(view, t, sources, float(np.median(self.ridges)))
        ridge = self._guide_ridge(t, sources)
        theirs = _solved(G, c, ridge)
        values, vectors = view.eigen(t)
        forms = self._slopes(sources)
        found = []
        for block in blocks:
            if block == 0:
                guide = theirs @ joint_ridge.match(c.T @ _solved(G + task.G, task.c, ridge))
                rest = vectors.T @ (task.c - task.G @ guide)
                found.append(guide + vectors @ joint_ridge.ridge_path(values, rest, ridges))
                continue
            rank, freedom = forms[block - 1]
            basis = vectors.T @ self._directions(view, sources, G, theirs, ridge, rank)
            found.append(vectors @ joint_ridge.shrunk_path(values, vectors.T @ task.c, basis, ridges, freedom))
        return np.concatenate(found)

    def _slopes(self, sources: list[int]) -> list[tuple[int, float]]:
        """(rank, freedom) of the directions tried; rank 0 is the sources' one joint solution itself.

        With the offset that is as many settings as ``joint`` has source weights by default: grids of one size.
        """
        outputs = sum(self.problems[s].outputs.shape[1] for s in sources)
        rank = min(4, outputs - 1, self.width - 1)
        return [(0, 1.0), (rank, 1.0)] if len(sources) > 1 and rank > 1 else [(0, 0.9), (0, 1.0)]

    def _directions(
        self, view: View, sources: list[int], G: FloatArray, solution: FloatArray, ridge: float, rank: int
    ) -> FloatArray:
        if rank == 0:
            left, size, _ = np.linalg.svd(solution, full_matrices=False)
            basis: FloatArray = left[:, size > 1e-10 * max(float(size[0]), np.finfo(float).tiny)]
            return basis
        moments = np.concatenate([view.tasks[s].c / np.sqrt(view.tasks[s].rows) for s in sources], axis=1)
        return joint_ridge.shared_directions(G, moments, ridge, rank)

    def _guide_ridge(self, t: int, sources: list[int]) -> float:
        """The ridge at which the joint solution of sources and target predicts the sources' held-out rows best."""
        circle = tuple(sorted({t, *sources}))
        if circle not in self._guide_losses:
            self._guide_losses[circle] = sum(
                (self._circle_losses(self.view(f), circle) for f in range(self.num_folds)),
                np.zeros((len(circle), len(self.ridges))),
            )
        losses = self._guide_losses[circle].sum(axis=0) - self._guide_losses[circle][circle.index(t)]
        return float(self.ridges[int(_least(losses))])

    def _circle_losses(self, view: View, circle: tuple[int, ...]) -> FloatArray:
        """(tasks, L): mean held-out squared error of each task by the joint solution of all, at every ridge."""
        ridge = float(np.median(self.ridges))
        if circle not in view.kept:
            view.kept[circle] = _oriented(view, circle, ridge)
        G, c, oriented = view.kept[circle]
        solved = joint_ridge.solve_ridges(G[None], c[None], self.ridges)[:, 0]
        losses = np.empty((len(circle), len(self.ridges)))
        for place, s in enumerate(circle):
            task = view.tasks[s]
            # from the common orientation back to the task's own outputs
            W = solved @ joint_ridge.match(oriented[s].T @ task.c)
            loss = joint_ridge.squared_error(W, task.hold_xx, task.hold_xy, task.hold_yy)
            losses[place] = loss / max(task.rows, 1.0)
        return losses

    def _settings(self, method: Method, cell: int) -> dict[str, float]:
        """What a place in a method's grid stands for."""
        block, ridge = divmod(cell, len(self.ridges))
        if method == "joint":
            return {"ridge": float(self.ridges[ridge]), "weight": float(self.weights[block])}
        return {"ridge": float(self.ridges[ridge]), "form": float(block)}

    def fit(self, target: str, sources: Sequence[str] | None = (), *, method: Method = "joint") -> LinearModel:
        """Settings chosen by the folds, then one fit on all rows of the core.

        Args:
            target: the task to predict.
            sources: none for the ridge alone, names, or None for all other tasks.
            method: "joint" (one model for target and sources) or "shrink" (the target's own model shrunk to the
                sources' joint solution).
        """
        t, chosen, cell, method_used = self._choice(target, sources, method)
        return self._model(self.view(None), t, chosen, method_used, cell)

    def out_of_fold(self, target: str, sources: Sequence[str] | None = (), *, method: Method = "joint") -> FloatArray:
        """Predictions (m,) or (m, K) for every row of a fold by the model that did not see it; NaN in fold -1.

        Each fold's model uses the settings that the *other* folds prefer, as ``alone`` and ``joint`` score them.
        """
        t, chosen, _, method_used = self._choice(target, sources, method)
        rest = self._rest(self._grid_losses(t, chosen, method_used))
        return self._held_out(t, chosen, method_used, _least(rest))

    def shared_ridge(self, names: Sequence[str]) -> float:
        """The one ridge with the least mean share of unexplained variance over the named tasks, each alone."""
        return float(self.ridges[int(_least(self._mean_shares(names).sum(axis=1)))])

    def fit_at(self, target: str, ridge: float) -> LinearModel:
        """The ridge of one task at a ridge of the grid, on all rows: for controls."""
        cell = int(np.argmin(np.abs(np.log(self.ridges / ridge))))
        return self._model(self.view(None), self._index(target), [], "alone", cell)

    def _mean_shares(self, names: Sequence[str]) -> FloatArray:
        """(L, K): unexplained share of every ridge alone, mean over tasks."""
        rows = [self._index(name) for name in names]
        errors, base = self._alone
        totals = base[rows].sum(axis=1)
        shares: FloatArray = errors[rows] / np.where(totals > 0, totals, np.inf)[:, None, None]
        return np.asarray(shares.mean(axis=0))

    def shared_ridge_out_of_fold(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """Like ``out_of_fold`` alone, with one ridge for all named tasks: a penalty is shared, and no model.

        A control: what joining gains by this route is no transfer. The ridge is the one with the least mean share of
        unexplained variance over tasks.
        """
        cells = _least(self._rest(self._mean_shares(names)))
        return {name: self._held_out(self._index(name), [], "alone", cells) for name in names}

    def _held_out(self, t: int, sources: list[int], method: Method | Literal["alone"], cells: IntArray) -> FloatArray:
        """Predictions of the first repeat's folds, each by its own cell of the grid."""
        problem = self.problems[t]
        shape = (len(problem.X),) if problem.kind != "multiclass" else (len(problem.X), problem.outputs.shape[1])
        predictions = np.full(shape, np.nan)
        for f in range(self.folds_a_repeat):
            held = self.fold_of[t] == f
            model = self._model(self.view(f), t, sources, method, int(cells[f]), seen=~held)
            predictions[held] = model.predict(problem.X[held])
        return predictions

    def _choice(
        self, target: str, sources: Sequence[str] | None, method: Method
    ) -> tuple[int, list[int], int, Method | Literal["alone"]]:
        if sources is not None and len(sources) == 0:
            t = self._index(target)
            return t, [], self._own_cell(t), "alone"
        t, chosen = self._target_and_sources(target, sources)
        return t, chosen, int(_least(self._grid_losses(t, chosen, method).sum(axis=1))), method

    def _own_cell(self, t: int) -> int:
        """The ridge a task chooses by itself; one never held out takes what is best for the others on average."""
        errors, base = self._alone
        with_evidence = [name for name, total in zip(self.names, base.sum(axis=1), strict=True) if total > 0]
        if base[t].sum() > 0 or not with_evidence:
            return int(_least(errors[t].sum(axis=1)))
        return int(_least(self._mean_shares(with_evidence).sum(axis=1)))

    def _grid_losses(self, t: int, sources: list[int], method: Method | Literal["alone"]) -> FloatArray:
        if method == "alone":
            own: FloatArray = self._alone[0][t]
            return own
        key = (t, tuple(sources), method)
        if key not in self._kept_losses:
            parts = [self._losses(self.view(f), t, sources, method) for f in range(self.num_folds)]
            self._kept_losses[key] = np.stack(parts, axis=-1)
        return self._kept_losses[key]

    def _model(
        self,
        view: View,
        t: int,
        sources: list[int],
        method: Method | Literal["alone"],
        cell: int,
        seen: BoolArray | None = None,
    ) -> LinearModel:
        """The model at one cell; ``seen`` are the rows it was trained on, whose labels bound its predictions."""
        task, problem = view.tasks[t], self.problems[t]
        if method == "alone":
            W = joint_ridge.solve_ridges(task.G[None], task.c[None], self.ridges[cell : cell + 1])[0, 0]
            settings = {"ridge": float(self.ridges[cell])}
        else:
            W = self._solutions(view, t, sources, method, cell)[0]
            settings = self._settings(method, cell)
        coef = W * task.scale_y / view.scale_x[:, None]
        intercept = task.mean_y - (self._origins[t] + task.mean_x) @ coef
        labels = problem.outputs[problem.labelled if seen is None else problem.labelled & seen]
        low, high = (0.0, 1.0) if problem.kind != "regression" else (float(labels.min()), float(labels.max()))
        names = tuple(self.names[s] for s in sources)
        return LinearModel(problem.name, names, method, coef, intercept, low, high, problem.kind, settings)


# ---------------------------------------------------------------------- pieces


def _least(losses: FloatArray) -> IntArray:
    """The place of the least loss along the first axis; of those equal but for rounding the last, the largest ridge.

    Ties are common where labels are rare: every ridge is right about held-out rows when training saw one class. The
    least regularised of them would then extrapolate from nothing.
    """
    least = losses.min(axis=0)
    tied = losses <= least + 1e-9 * np.abs(least)
    return np.asarray(len(losses) - 1 - np.argmax(tied[::-1], axis=0))


def _grid(given: Sequence[float] | None, default: tuple[float, ...], what: str) -> FloatArray:
    grid = np.asarray(default if given is None else given, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not (np.isfinite(grid) & (grid > 0)).all():
        raise InputError(f"{what} need positive numbers, found {given!r}. Give a grid such as {default[:3]}.")
    return np.unique(grid)


def _solved(G: FloatArray, c: FloatArray, ridge: float) -> FloatArray:
    found: FloatArray = joint_ridge.solve_ridges(G[None], c[None], np.array([ridge]))[0, 0]
    return found


def _members(sharing: Sequence[int]) -> Iterator[list[int]]:
    for number in dict.fromkeys(sharing):
        yield [i for i, other in enumerate(sharing) if other == number]


def _padded(c: FloatArray, outputs: int) -> FloatArray:
    return c if c.shape[1] == outputs else np.pad(c, ((0, 0), (0, outputs - c.shape[1])))


def _merged(view: View, t: int, sources: list[int], ridge: float) -> tuple[FloatArray, FloatArray]:
    """The sources of task ``t`` as one: summed second moments, and summed moments brought to one orientation.

    The orientation (a sign for one output) is that of the leading shared direction of sources and target together, so
    that one decomposition serves every target of a set of tasks.
    """
    if len(sources) == 1:
        return view.tasks[sources[0]].G, view.tasks[sources[0]].c
    circle = tuple(sorted({t, *sources}))
    if circle not in view.kept:
        view.kept[circle] = _oriented(view, circle, ridge)
    G, total, oriented = view.kept[circle]
    return G - view.tasks[t].G, total - oriented[t]


def _oriented(
    view: View, circle: tuple[int, ...], ridge: float
) -> tuple[FloatArray, FloatArray, dict[int, FloatArray]]:
    """Summed ``G``, summed oriented ``c``, and the oriented ``c`` of each task."""
    G = np.zeros_like(view.tasks[circle[0]].G)
    for number in {view.sharing[s] for s in circle}:
        sharing = [s for s in circle if view.sharing[s] == number]
        G += len(sharing) * view.tasks[sharing[0]].G
    outputs = max(view.tasks[s].c.shape[1] for s in circle)
    moments = np.concatenate([view.tasks[s].c / np.sqrt(view.tasks[s].rows) for s in circle], axis=1)
    leading = joint_ridge.shared_directions(G, moments, ridge, outputs)
    oriented = {s: view.tasks[s].c @ joint_ridge.match(view.tasks[s].c.T @ leading) for s in circle}
    return G, sum(oriented.values(), np.zeros((len(G), 1))), oriented


def _errors(members: Sequence[Standard], W: FloatArray) -> FloatArray:
    """Held-out squared error (L, P), original units, of coefficients (L, P, d, q); columns beyond q_i are padding."""
    found = np.empty(W.shape[:2])
    for p, task in enumerate(members):
        own = W[:, p, :, : task.c.shape[1]]
        found[:, p] = joint_ridge.squared_error(own, task.hold_xx, task.hold_xy, task.hold_yy) * task.scale_y**2
    return found


def _shared_error(
    products: tuple[FloatArray, FloatArray, FloatArray], t: slice, s: slice, root: float, yy: float
) -> float:
    """Held-out squared error of the joint solution of two tasks with the same inputs.

    ``products`` are ``U^T H U``, ``U^T h`` and ``c^T U`` over all outputs: ``U`` solutions, ``H, h`` held-out moments.
    """
    UHU, Uh, cU = products
    A = joint_ridge.match(cU[s, t])
    mine, theirs = 1.0 / root, A * root
    cross = UHU[t, s] @ theirs
    square = mine**2 * np.trace(UHU[t, t]) + 2 * mine * np.trace(cross) + np.sum(theirs * (UHU[s, s] @ theirs))
    return float(yy - 2 * (mine * np.trace(Uh[t, t]) + np.sum(theirs * Uh[s, t])) + square)


def _shares(loss: FloatArray, base: FloatArray) -> FloatArray:
    """Loss a fold as a share of the average fold's variance: their mean is the loss of all rows over all variance."""
    total = float(base.mean())
    return loss / total if total > 0 else np.ones_like(loss)


def _plain(numbers: dict[str, FloatArray]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if name != "folds"}
