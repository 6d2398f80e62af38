"""Advice keeps a planted gain, keeps tasks alone where there is none, and is what fit builds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mtlens.errors import InputError
from mtlens.models.fitting import fit
from mtlens.models.system import Grid, System
from mtlens.study import Study
from mtlens.study.advice import Advice, _shared_told, advise
from mtlens.study.candidates import Candidate, HeldOut
from mtlens.tasks import Task, TaskSet, read_tasks

SMALL = Grid(capacities=[4], learning_rates=[1e-2], epochs=3)


def schools(count: int = 12, rows: int = 24, *, related: bool = True, seed: int = 0) -> TaskSet:
    """Small tasks that follow one model, or each its own."""
    random = np.random.default_rng(seed)
    theta = random.standard_normal(8)
    made = []
    for i in range(count):
        X = random.standard_normal((rows, 8))
        model = theta if related else random.standard_normal(8)
        made.append(Task(f"school {i}", X, X @ model + 2 * random.standard_normal(rows), kind="regression"))
    return TaskSet(made)


@pytest.fixture(scope="module")
def joined() -> Advice:
    return advise(schools(), families=("linear",))


def test_a_gain_that_is_there_is_kept(joined: Advice) -> None:
    assert joined.difference > 0.05 and joined.low > 0
    assert joined.sharing is not None and joined.sharing > 0.02
    assert joined.sharing_low is not None and joined.sharing_high is not None
    assert joined.sharing_low < joined.sharing < joined.sharing_high
    gains = [plan.difference for plan in joined.system.tasks]
    assert np.mean([gain for gain in gains if gain is not None]) == pytest.approx(joined.difference)
    assert all(plan.is_joint and plan.weight > 0.4 for plan in joined.system.tasks)
    assert "Join 12 tasks" in joined.system.summary
    assert f"; {_shared_told(joined.sharing, joined.difference)}." in joined.system.summary


def test_a_gain_without_sharing_is_called_that() -> None:
    """One strength for all ridges is what these tasks need, and the control with no shared model has it, too."""
    tasks = schools(30, 12, related=False)
    advice = advise(tasks, families=("linear",), folds=3)
    assert advice.sharing is None or advice.sharing < advice.difference
    assert _shared_told(-0.01, 0.02) == _shared_told(0.0, 0.02)
    assert _shared_told(0.0004, 0.02).startswith("none of it is due to sharing")
    assert _shared_told(0.012, 0.02).startswith("+1.2 of them are due to sharing")
    assert _shared_told(0.02, 0.02).startswith("all of it is due to sharing")


def test_nothing_to_gain_keeps_every_task_alone() -> None:
    for seed in range(3):
        advice = advise(schools(6, 60, related=False, seed=seed), families=("linear",))
        assert advice.difference == 0.0 and advice.sharing is None
        assert all(plan.recipe == "alone" for plan in advice.system.tasks)
        assert advice.system.summary.startswith("Keep every task alone")
        assert "standard errors on held-out rows (nearest, " in advice.system.tasks[0].evidence


def test_the_system_survives_toml_and_fit_builds_it(joined: Advice) -> None:
    assert System.from_toml(joined.system.to_toml()) == joined.system
    tasks = schools()
    model = fit(tasks, advice=joined.system)
    random = np.random.default_rng(0)
    theta = random.standard_normal(8)
    X = np.random.default_rng(99).standard_normal((2000, 8))
    alone = fit(tasks, advice=System.alone(tasks.names))
    errors = [np.mean([((m.predict(X, n) - X @ theta) ** 2).mean() for n in tasks.names]) for m in (model, alone)]
    assert errors[0] < 0.7 * errors[1]


def test_the_dictionary_is_what_the_page_reads(joined: Advice) -> None:
    told = json.loads(json.dumps(joined.to_dict()))
    assert {"summary", "difference", "low", "high", "per_task", "tried", "found"} <= set(told)
    row = told["per_task"][0]
    assert {"task", "recipe", "weight", "difference", "low", "high", "evidence", "would_change"} <= set(row)
    assert any(entry["control"] for entry in told["tried"])


def test_unequal_grids_are_refused() -> None:
    with pytest.raises(InputError, match="Unequal grids fake gains"):
        advise(schools(3), grid=Grid(capacities=[8]), joint_grid=Grid(capacities=[8, 128]))
    with pytest.raises(InputError, match="must name linear, trunk"):
        advise(schools(3), families=("forest",))  # type: ignore[arg-type]


def test_both_sides_try_equally_many_cells() -> None:
    held = HeldOut(schools(3), grid=Grid(), seed=0, folds=3, options={}, say=lambda _: None)
    assert len(held.alone_core.ridges) == len(held.joint_core.ridges) * len(held.joint_core.weights)
    sources = [1, 2]
    for method in ("joint", "shrink"):
        cells = held.joint_core._grid_losses(0, sources, method)  # type: ignore[arg-type]
        assert len(cells) == len(held.alone_core.ridges)


def test_held_out_predictions_never_saw_their_rows() -> None:
    """Changing the labels of one fold changes nothing that is predicted for it by models with settled settings."""
    tasks = schools(3)
    grid = Grid(ridges=[0.1], weights=[1.0])

    def predictions(tasks: TaskSet) -> tuple[HeldOut, dict[str, np.ndarray]]:
        held = HeldOut(tasks, grid=grid, seed=0, folds=3, options={}, say=lambda _: None)
        return held, held.joint(Candidate("joint", "linear"))

    held, before = predictions(tasks)
    fold = held.fold_of["school 0"] == 1
    y = tasks["school 0"].y.copy()
    middle = float(np.median(y))
    y[fold] = middle  # inside the range, so that clipping is the same
    _, after = predictions(TaskSet([tasks["school 0"].replace(y=y), *list(tasks)[1:]]))
    np.testing.assert_allclose(after["school 0"][fold], before["school 0"][fold])
    assert not np.allclose(after["school 0"][~fold], before["school 0"][~fold])


def test_groups_for_a_fold_are_chosen_without_a_look_at_its_rows() -> None:
    """Nothing of a fold's labels enters the transfers by which its groups are chosen; those of other folds do."""
    tasks = schools(4, 30)

    def pairs(tasks: TaskSet) -> np.ndarray:
        return HeldOut(tasks, grid=Grid(), seed=0, folds=3, options={}, say=lambda _: None).pairs_without(1)

    fold_of = HeldOut(tasks, grid=Grid(), seed=0, folds=3, options={}, say=lambda _: None).fold_of

    def changed(fold: int) -> TaskSet:
        return TaskSet([t.replace(y=np.where(fold_of[t.name] == fold, -5.0 * t.y, t.y)) for t in tasks])

    before = pairs(tasks)
    assert before.shape == (4, 4) and np.isfinite(before[~np.eye(4, dtype=bool)]).all()
    np.testing.assert_array_equal(pairs(changed(1)), before)
    assert not np.allclose(pairs(changed(2)), before, equal_nan=True)


def test_tasks_too_small_for_evidence_take_the_pooled_weight() -> None:
    tasks = schools()
    tiny = tasks["school 0"].take(np.arange(7)).replace(name="tiny")
    advice = advise(TaskSet([*list(tasks), tiny]), families=("linear",))
    plan = advice.system.plan_of("tiny")
    assert plan.is_joint and plan.n == 0 and plan.difference is None
    assert any("too small" in line for line in advice.found)


def test_groups_of_a_kind_are_found_and_limited() -> None:
    one, two = schools(5, seed=1), schools(5, seed=2)
    tasks = TaskSet([*list(one), *[t.replace(name=f"other {i}") for i, t in enumerate(two)]])
    sign = np.repeat([1, -1], 5)
    pairs = np.where(np.equal.outer(sign, sign), 0.2, -0.3)
    advice = advise(tasks, families=("linear",), pairs=pairs, pair_errors=np.full((10, 10), 0.01), max_models=2)
    assert [len(group) for group, _ in advice.grouping] == [5, 5]
    assert min(stability for _, stability in advice.grouping) > 0.9
    group = next(row for row in advice.tried if row.name == "group (linear)")
    together = next(row for row in advice.tried if row.name == "joint (linear)")
    assert group.gain > together.gain


def test_a_spec_limits_the_models_and_a_study_obeys(tmp_path: Path) -> None:
    """Three kinds of tasks: more than two groups when nobody minds, two when the SPEC says so."""
    random = np.random.default_rng(0)
    theta = np.linalg.qr(random.standard_normal((8, 3)))[0].T
    tables = []
    for i in range(6):
        X = random.standard_normal((60, 8))
        y = 3 * X @ theta[i // 2] + random.standard_normal(60)
        np.savetxt(
            tmp_path / f"{i}.csv", np.column_stack([X, y]), delimiter=",", header="a,b,c,d,e,f,g,h,y", comments=""
        )
        tables.append(f'[[task]]\nname = "t{i}"\npath = "{i}.csv"\nlabel = "y"\n')
    sizes = {}
    for limit in ("", "max_models = 2\n"):
        spec = tmp_path / "spec.toml"
        spec.write_text(f'families = ["linear"]\n{limit}' + "\n".join(tables))
        verdicts = Study(read_tasks(spec), splits=2, executor="here", ledger=tmp_path / "ledger.sqlite").run().verdicts
        sizes[limit] = len(verdicts["groups"])
    assert sizes[""] > 2 and sizes["max_models = 2\n"] == 2
    with pytest.raises(InputError, match="max_models=0 is no number of models"):
        advise(schools(3), families=("linear",), max_models=0)


def test_two_input_spaces_are_advised_apart() -> None:
    wide = [
        Task(f"wide {i}", np.random.default_rng(i).standard_normal((30, 11)), np.arange(30) / 7, kind="regression")
        for i in range(2)
    ]
    advice = advise(TaskSet([*list(schools()), *wide]), families=("linear",))
    assert set(advice.system.sources_of("school 0")) == {f"school {i}" for i in range(1, 12)}
    assert advice.system.plan_of("wide 0").recipe == "alone"


def test_classes_missing_labels_and_shared_rows() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((60, 5))
    scores = X @ random.standard_normal((5, 3)) + random.standard_normal((60, 3))
    y = (scores[:, 0] > 0) * 1.0
    y[::4] = np.nan
    tasks = [
        Task("coin", X, y, kind="binary"),
        Task("dice", X, scores.argmax(axis=1), kind="multiclass"),
        Task("number", X, scores[:, 2], kind="regression"),
    ]
    shared = [task.replace(X=tasks[0].X) for task in tasks]
    advice = advise(shared, families=("linear",))
    assert len(advice.tried) >= 4 and advice.capacity


@pytest.mark.medium
def test_networks_and_their_control() -> None:
    advice = advise(schools(3, 30), families=("linear", "trunk"), grid=SMALL, folds=3)
    names = [row.name for row in advice.tried]
    assert "joint (trunk)" in names and "penalty shared, no model shared" in names


def test_advice_is_a_function_of_data_and_seed(joined: Advice) -> None:
    again = advise(schools(), families=("linear",))
    assert again.to_dict() == joined.to_dict() and again.system == joined.system
