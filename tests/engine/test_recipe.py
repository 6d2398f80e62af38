"""What ``train`` promises: selection, stopping, scores in original units, failures, identities."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mtlens import Task, TaskSet, Trained, Training, train
from mtlens.engine import Grid, fine_tune, regularised, tune
from mtlens.engine.controls import ALONE, WITHOUT
from mtlens.engine.order import EMPTY, epoch_order, steps_per_epoch
from mtlens.engine.prepare import Preparation
from mtlens.errors import FileError, InputError, TrainingError, UnknownNameError
from mtlens.tasks.metrics import score


def test_scores_are_those_of_the_models_own_predictions(shared: TaskSet) -> None:
    (trained,) = train([Training(shared, "mlp", 6, epochs=4, lr=0.01)], keep="predictions")
    for split in ("train", "valid", "test"):
        for task in shared:
            rows = task.rows_of(split)
            weight = None if task.weight is None else task.weight[rows]
            predicted = trained.predict(task.name, task.X[rows])
            assert trained.predictions is not None
            np.testing.assert_allclose(trained.predictions[split][task.name], predicted, atol=1e-5)
            mine = score(task.metric, task.y[rows], predicted, weight, classes=task.classes)
            assert trained.scores[split][task.name] == pytest.approx(mine, abs=1e-4)


def test_labels_come_back_in_their_own_units() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * [1, 1e4, 1e-4] + [0, 1e6, 5]
    Z = (X - X.mean(0)) / X.std(0)
    task = Task("price", X, 1e5 + 2e3 * (Z @ [1.0, -2.0, 0.5]), split=np.repeat(["train", "test"], 100))
    (trained,) = train([Training(task, "linear", 2, epochs=80, lr=0.05, select="last")], keep="predictions")
    assert trained.scores["test"]["price"] > 0.999
    assert trained.predictions is not None
    np.testing.assert_allclose(trained.predictions["test"]["price"], task.y[100:], rtol=0.01)


def test_validation_chooses_the_epoch(shared: TaskSet) -> None:
    training = Training(shared["r"], "mlp", 30, epochs=25, lr=0.05)
    best, last = train([training, training.but(select="last")])
    curve = best.history["valid"]["r"]
    assert best.history["epoch"] == int(np.argmax(curve)) + 1 < 25
    assert last.history["epoch"] == 25
    assert best.scores["valid"]["r"] == pytest.approx(curve.max(), abs=1e-5)
    assert last.scores["valid"]["r"] == pytest.approx(curve[-1], abs=1e-5)


def test_early_stopping_leaves(shared: TaskSet) -> None:
    training = Training(shared["r"], "linear", 2, epochs=300, lr=0.05, stop="converged", patience=3)
    (trained,) = train([training])
    assert trained.reason == "converged"
    assert 3 < len(trained.history["loss"]) < 300


def test_without_a_split_every_row_trains_and_best_is_refused() -> None:
    task = Task("t", np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0))
    with pytest.raises(InputError, match="'t' has no split"):
        Training(task)
    (trained,) = train([Training(task, select="last", epochs=1)])
    assert set(trained.scores) == {"train"}


def test_a_loss_that_explodes_ends_alone(shared: TaskSet) -> None:
    good = Training(shared["r"], "linear", 2, epochs=4)
    bad = good.but(optimizer="sgd", lr=1e30)
    first, second, third = train([good, bad, good.but(seed=1)])
    assert first.ok and third.ok
    assert not second.ok and second.reason.startswith("loss not finite in epoch")
    assert second.scores == {} and second.model is None


def test_identity_is_content_not_place(shared: TaskSet) -> None:
    one = Training(shared, "mlp", 5)
    copy = TaskSet([task.replace(y=task.y.copy(), X=np.array(task.X)) for task in shared])
    assert one.identity == Training(copy, "mlp", (5,)).identity == one.but().identity
    changed: dict[str, Any] = {
        "capacity": 6, "lr": 0.1, "seed": 1, "steps": "mixed", "align": "joint", "weighting": "svd", "epochs": 7,
    }  # fmt: skip
    others = [one.but(**{name: value}).identity for name, value in changed.items()]
    assert len({one.identity, *others}) == len(others) + 1
    y = shared["r"].y.copy()
    y[np.flatnonzero(shared["r"].labelled)[0]] += 1e-9
    assert Training([shared["r"].replace(y=y)], "mlp", 5).identity != Training(shared["r"], "mlp", 5).identity


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0}, "lr=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch": 2.5}, "batch=2.5"),
        ({"capacity": 0}, "capacity=0"),
        ({"trunk": "linear", "capacity": (3, 3)}, "one layer"),
        ({"penalty": 1.0}, "align is None"),
        ({"penalty": -1.0, "align": "joint"}, "penalty=-1.0"),
        ({"align": "joint", "align_rank": 0}, "align_rank=0"),
        ({"weighting": (1.0, 2.0)}, "2 numbers for 3 tasks"),
        ({"weighting": (1.0, -2.0, 1.0)}, "not negative"),
        ({"freeze": ("trunk", "heads")}, "nothing to train"),
        ({"lr": 10**400}, "lr=inf"),
        ({"align": "joint", "align_at": ""}, "align_at=''"),
        ({"align_rank": "x"}, "align_rank='x'"),
        ({"trunk": nn.Linear}, "torch.nn.modules.linear.Linear cannot be called with the capacity alone"),
        ({"trunk": lambda: nn.Linear(6, 3)}, "cannot be called with the capacity alone"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(shared: TaskSet, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Training(shared, **settings)


@pytest.mark.parametrize(
    "settings",
    [{"optimizer": "adan"}, {"steps": "both"}, {"align": "maybe"}, {"weighting": {"x": 1}}, {"dtype": "int8"},
     {"trunk": "mpl"}, {"stop": "never"}, {"weighting": "svdd"}],
)  # fmt: skip
def test_unknown_names_are_refused(shared: TaskSet, settings: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError):
        Training(shared, **settings)


def test_every_row_meets_every_epoch_once(shared: TaskSet, separate: TaskSet) -> None:
    for tasks, steps in ((shared, "joint"), (shared, "mixed"), (separate, "mixed")):
        member = Preparation().member(Training(tasks, steps=steps, batch=16))
        order = epoch_order(member, 3)
        assert len(order) == steps_per_epoch(member)
        if order.active is None:
            rows = np.sort(order.rows[order.rows != EMPTY])
            np.testing.assert_array_equal(rows, member.union)
        else:
            for place, slot in enumerate(member.slots):
                own = order.rows[order.active == place]
                np.testing.assert_array_equal(np.sort(own[own != EMPTY]), slot.train)


def test_orders_differ_by_epoch_and_seed_but_not_by_company(shared: TaskSet) -> None:
    def rows(seed: int, epoch: int, names: list[str]) -> list[tuple[int, ...]]:
        member = Preparation().member(Training(shared.subset(names), steps="mixed", seed=seed, batch=16))
        order = epoch_order(member, epoch)
        assert order.active is not None
        return sorted(map(tuple, order.rows[order.active == member.names.index("r")].tolist()))

    first = rows(0, 0, ["r", "b"])
    assert first == rows(0, 0, ["r", "b", "c"])
    assert first != rows(0, 1, ["r", "b"])
    assert first != rows(1, 0, ["r", "b"])


def test_starts_are_alike_alone_and_in_company(shared: TaskSet) -> None:
    prepared = Preparation()
    alone = prepared.member(Training(shared["b"], "mlp", 5))
    together = prepared.member(Training(shared, "mlp", 5))
    for name, value in alone.start.trunk.items():
        assert (together.start.trunk[name] == value).all()
    place = together.names.index("b")
    assert (alone.start.heads[0][0] == together.start.heads[place][0]).all()


def test_fixed_alignment_leaves_the_trunk_as_it_was(shared: TaskSet) -> None:
    (base,) = train([Training(shared, "relu", 5, epochs=2)])
    (aligned,) = train([Training(shared, "relu", 5, epochs=2, align="fixed", start_from=base, select="last")])
    assert base.model is not None and aligned.model is not None
    before, after = base.model.net.state_dict(), aligned.model.net.state_dict()
    assert (before["trunk.weights.0"] == after["trunk.weights.0"]).all()
    assert not (after["align.0.R"] == np.eye(6)).all()
    assert not (before["heads.0.weight"] == after["heads.0.weight"]).all()


def test_a_strong_penalty_holds_the_identity(shared: TaskSet) -> None:
    settings: dict[str, Any] = {"trunk": "relu", "capacity": 5, "epochs": 30, "align": "joint", "optimizer": "sgd"}
    loose, tight = train([Training(shared, penalty=p, lr=0.005, **settings) for p in (0.0, 10.0)])
    assert loose.model is not None and tight.model is not None
    away = [float((m.net.align[0].deviation().detach() ** 2).sum()) for m in (loose.model, tight.model)]
    assert away[1] < 0.01 * away[0]


def test_controls_stand_beside_alignment(shared: TaskSet) -> None:
    plain, aligned = train(
        [Training(shared, "relu", 4, epochs=2), Training(shared, "relu", 4, epochs=2, align="fixed")], controls=True
    )
    assert plain.controls is None and aligned.controls is not None
    without = aligned.controls[WITHOUT]
    assert without.training.align is None and without.training.start_from is not None and without.training.epochs == 2
    assert {name: t.training.epochs for name, t in aligned.controls[ALONE].items()} == {"r": 4, "b": 4, "c": 4}


def test_one_grid_serves_all(shared: TaskSet) -> None:
    said: list[str] = []
    contestants = [Training(shared["r"], "linear", 2, epochs=3), Training(shared, "linear", 2, epochs=3)]
    winners = tune(contestants, Grid(lr=(1e-4, 1e-2)), say=said.append)
    assert said == ["grid of 2 candidates: lr in (0.0001, 0.01); the same for all 2 trainings (4 in all)"]
    assert all(len(w.tried) == 2 and w.best.training.lr == 1e-2 and w.best.model is not None for w in winners)


def test_a_grid_nobody_survives_is_said(shared: TaskSet) -> None:
    training = Training(shared["r"], "linear", 2, epochs=3, optimizer="sgd")
    with pytest.raises(TrainingError, match="none of the 1 candidates"):
        tune(training, {"lr": [1e30]}, say=lambda _: None)


def test_the_pull_is_chosen_on_validation(shared: TaskSet) -> None:
    tuned = regularised(Training(shared, "relu", 4, epochs=2, align="joint"), (0.0, 1.0), say=lambda _: None)
    assert [t.training.penalty for t in tuned.tried] == [0.0, 1.0]


def test_fine_tuning_starts_where_the_source_ended(shared: TaskSet) -> None:
    (source,) = train([Training(shared["r"], "mlp", 5, epochs=3)])
    (tuned,) = train([fine_tune(source, shared["b"], epochs=1, lr=1e-12)])
    assert source.model is not None and tuned.model is not None
    one, two = source.model.net.state_dict(), tuned.model.net.state_dict()
    np.testing.assert_allclose(one["trunk.weights.0"], two["trunk.weights.0"], atol=1e-6)
    with pytest.raises(InputError, match="same trunk, capacity and features"):
        train([fine_tune(source, shared["b"], capacity=6)])


def test_scores_only_keeps_no_model(shared: TaskSet) -> None:
    (trained,) = train([Training(shared["r"], epochs=1)], keep="scores")
    assert trained.model is None and trained.scores["test"]
    with pytest.raises(TrainingError, match="keep='model'"):
        trained.predict("r", shared["r"].X)


def test_a_broken_argument_fails_before_anything_runs(shared: TaskSet) -> None:
    training = Training(shared["r"], epochs=1)
    with pytest.raises(UnknownNameError, match="engine"):
        train([training], engine="bonk")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="keep"):
        train([training], keep="everything")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Training objects"):
        train(["mlp"])  # type: ignore[list-item]
    assert train([]) == []


def test_ctrl_c_returns_what_is_finished(shared: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtlens.engine import run
    from mtlens.engine.progress import watcher as quiet

    short, long = Training(shared["r"], "linear", 2, epochs=1), Training(shared, "mlp", 8, epochs=10_000)

    class Impatient:
        def __init__(self, state: Any, show: Any) -> None:
            self.state = state

        def __enter__(self) -> Any:
            return self.watch

        def __exit__(self, *_: object) -> None: ...

        def watch(self) -> None:
            if self.state.finished:
                raise KeyboardInterrupt

    assert quiet is run.watcher
    monkeypatch.setattr(run, "watcher", Impatient)
    first, second = train([short, long], engine="bank", workers=2)
    assert first.ok and first.scores
    assert second.reason == "interrupted" and second.scores == {}


def test_the_allocators_own_error_is_out_of_memory() -> None:
    from mtlens.engine.bank import is_out_of_memory

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55, dtype=torch.uint8)  # more than any machine can address
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_out_of_memory_halves_the_stack(shared: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtlens.engine import bank

    sizes: list[int] = []
    real = bank.Stack

    def small(layout: Any, runs: Any, pool: Any, store: Any) -> Any:
        sizes.append(len(runs))
        if len(runs) > 2:
            raise MemoryError
        return real(layout, runs, pool, store)

    trainings = [Training(shared["r"], "linear", 2, epochs=1, seed=s) for s in range(8)]
    expected = train(trainings, workers=1)
    monkeypatch.setattr(bank, "Stack", small)
    for one, other in zip(train(trainings, workers=1), expected, strict=True):
        assert one.scores["test"] == pytest.approx(other.scores["test"], rel=1e-4)
    assert sizes[:3] == [8, 4, 2]


def test_an_unguarded_script_can_train(tmp_path: Path) -> None:
    script = tmp_path / "study.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np
            from mtlens import Task, Training, train
            X = np.random.default_rng(0).normal(size=(60, 3))
            task = Task("t", X, X[:, 0], split=np.repeat(["train", "valid"], 30))
            print(sum(t.ok for t in train([Training(task, epochs=1, seed=s) for s in range(4)], workers=2)))
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


class _Impatient:
    """A watcher that presses Ctrl-C once ``when`` says so of the call's counters."""

    def __init__(self, when: Any) -> None:
        self.when, self.pressed = when, False

    def __call__(self, state: Any, show: Any) -> Any:
        self.state = state
        return self

    def __enter__(self) -> Any:
        return self.watch

    def __exit__(self, *_: object) -> None: ...

    def watch(self) -> None:
        if not self.pressed and self.when(self.state):
            self.pressed = True
            raise KeyboardInterrupt


def test_ctrl_c_ends_the_waves_that_would_follow(shared: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs one by one, then stacks; bases, then what starts from them; results, then their controls."""
    from mtlens.engine import run

    def pressed(given: list[Training], when: Any, **options: Any) -> list[Trained]:
        monkeypatch.setattr(run, "watcher", _Impatient(when))
        return train(given, **options)

    long = Training(shared, "mlp", 8, epochs=10_000)
    odd, stacked = long.but(weighting="UPGrad"), long.but(epochs=1)
    assert [t.reason for t in pressed([stacked, odd, odd.but(seed=1)], lambda _: True)] == ["interrupted"] * 3
    assert [t.reason for t in pressed([long.but(align="fixed")], lambda _: True)] == ["interrupted"]
    short = Training(shared, "mlp", 8, epochs=1, align="joint")
    (trained,) = pressed([short], lambda state: state.finished == state.total > 0, controls=True)
    assert trained.controls is not None
    assert trained.ok or trained.reason == "interrupted"
    assert trained.controls[WITHOUT].reason == "interrupted"
    with pytest.raises(TrainingError, match="interrupted with 2 of the 2 candidates"):
        monkeypatch.setattr(run, "watcher", _Impatient(lambda _: True))
        tune(long, {"lr": [0.1, 0.01]}, say=lambda _: None)


def test_out_of_memory_between_epochs_loses_nobody(shared: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that have just taken a place, and those that have just ended, when memory runs out."""
    from mtlens.engine import stack

    monkeypatch.setattr("mtlens.engine.bank.CHUNK", {"shared": 4, "each": 4, "mixed": 4})
    trainings = [Training(shared["r"], "linear", 2, epochs=1 + s % 3, seed=s) for s in range(9)]
    expected = train(trainings, workers=1)
    real, calls = stack.Stack._rebuild, []

    def failing(self: Any) -> None:
        calls.append(len(self.runs))
        if len(calls) == 2:
            raise MemoryError
        real(self)

    monkeypatch.setattr(stack.Stack, "_rebuild", failing)
    for one, other in zip(train(trainings, workers=1), expected, strict=True):
        assert one.ok and one.scores["test"] == pytest.approx(other.scores["test"], rel=1e-4)
    assert calls[1] > 1


def test_one_model_without_memory_is_a_reason(shared: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("mtlens.engine.workers.train_solo", none_left)
    (trained,) = train(Training(shared, epochs=1), engine="solo")
    assert trained.reason == "out of memory with one model" and trained.model is None


@pytest.mark.parametrize("engine", ["bank", "solo"])
def test_algorithm_1_alternates_task_by_task(separate: TaskSet, engine: Any) -> None:
    """With mixed steps every task's batches move its head and its matrix in turn, wherever they fall in the epoch."""
    (base,) = train(Training(separate, "linear", 3, epochs=1, dtype="float64"))
    one_step_each = base.training.but(align="fixed", start_from=base, batch=100, select="last", lr=1e-3)

    def moved(epochs: int) -> tuple[list[bool], list[bool]]:
        (trained,) = train(one_step_each.but(epochs=epochs), engine=engine)
        assert trained.model is not None and base.model is not None and trained.model.net.align is not None
        pairs = zip(trained.model.net.heads, base.model.net.heads, strict=True)
        heads = [not torch.equal(new.weight, old.weight) for new, old in pairs]
        return heads, [bool(own.deviation().any()) for own in trained.model.net.align]

    assert moved(1) == ([True] * 3, [False] * 3)
    assert moved(2) == ([True] * 3, [True] * 3)


def test_whole_and_real_numbers_are_one_setting(shared: TaskSet) -> None:
    one = Training(shared, lr=1, weight_decay=0, align="joint", penalty=np.float32(1))  # type: ignore[arg-type]
    assert one.identity == Training(shared, lr=1.0, align="joint", penalty=1.0).identity


def test_numbers_whose_squares_overflow_are_refused(shared: TaskSet) -> None:
    X, y = np.asarray(shared["r"].X), shared["r"].y
    for task in (Task("huge", 1e200 * X, y), Task("huge", X, 1e200 * y, kind="regression")):
        with pytest.raises(InputError, match=r"up to \d\.\d+e\+200 have squares beyond"):
            train(Training(task, "mlp", 3, epochs=1, select="last"))


def test_frozen_parts_have_no_order(shared: TaskSet) -> None:
    parts = ["trunk", "align", "trunk"]
    orders = (parts, parts[::-1], set(parts))
    assert len({Training(shared, align="joint", freeze=order).identity for order in orders}) == 1  # type: ignore[arg-type]


def test_a_start_on_other_columns_is_refused(shared: TaskSet) -> None:
    (source,) = train(Training(shared, "mlp", 4, epochs=1))
    narrow = TaskSet([shared["r"].replace(X=np.array(shared["r"].X[:, :3]))])
    with pytest.raises(
        InputError, match=r"rows of shape \(3,\), but the training it starts from read rows of shape \(6,\)"
    ):
        train(Training(narrow, "mlp", 4, epochs=1, start_from=source))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weighting": None}, "one number a task"),
        ({"weighting": ["a", "b", "c"]}, "one number a task"),
        ({"freeze": 3}, "names of parts"),
        ({"start_from": 5}, "is a int"),
        ({"tasks": None}, "read_tasks"),
        ({"tasks": "school.csv"}, "read_tasks"),
        ({"lr": True}, "lr=True"),
    ],
)
def test_settings_of_a_wrong_type_are_refused(shared: TaskSet, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Training(**{"tasks": shared, **settings})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu9"}, "device='tpu9'"),
        ({"device": "cuda:99"}, "device='cuda:99'"),
        ({"device": "meta"}, "device='meta'"),
        ({"workers": "two"}, "workers='two'"),
        ({"workers": 0}, "workers=0"),
        ({"checkpoints": 3}, "checkpoints=3"),
        ({"checkpoints": ""}, "checkpoints=''"),
    ],
)
def test_options_that_cannot_be_used_are_refused(shared: TaskSet, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(Training(shared, epochs=1), **options)
    with pytest.raises(InputError, match="Give a list of Training objects"):
        train(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "meant"), [("eqal", "equal"), ("Uncertainty", "uncertainty"), ("UPGradd", "UPGrad")])
def test_a_slip_in_a_weighting_is_guessed(shared: TaskSet, name: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"no weighting named {name!r} in Training.*Did you mean {meant!r}"):
        Training(shared, weighting=name)


def test_checkpoints_that_cannot_be_written_are_refused_before_training(shared: TaskSet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be a folder"):
        train(Training(shared, epochs=10**9), checkpoints=tmp_path / "file")


@pytest.mark.parametrize("engine", ["bank", "solo"])
@pytest.mark.parametrize("steps", ["joint", "mixed"])
def test_a_batch_beyond_the_rows_is_all_rows(shared: TaskSet, separate: TaskSet, engine: Any, steps: Any) -> None:
    for tasks in (shared, separate):
        whole = Training(tasks, "mlp", 3, batch=128, steps=steps, epochs=2, dtype="float64")
        first, second = train([whole, whole.but(batch=10**15)], engine=engine)
        assert abs(first.history["loss"] - second.history["loss"]).max() < 1e-12
        assert whole.identity != whole.but(batch=10**15).identity


@pytest.mark.parametrize("engine", ["bank", "solo"])
def test_without_a_validation_score_the_last_epoch_is_kept(engine: Any) -> None:
    """One class among the validation rows: there is no ROC-AUC, and nothing to prefer the first epoch for."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y, split = (X[:, 0] > 0).astype(float), np.repeat(["train", "valid"], 20)
    y[20:] = 0
    training = Training(Task("t", X, y, kind="binary", split=split), "mlp", 3, epochs=4, dtype="float64")
    best, last = train([training, training.but(select="last")], engine=engine)
    assert best.history["epoch"] == 4
    assert best.scores["train"] == last.scores["train"]


@pytest.mark.parametrize("engine", ["bank", "solo"])
@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_on_whatever_the_caller_switched_off(shared: TaskSet, engine: Any, off: Any) -> None:
    training = Training(shared, "mlp", 3, epochs=2)
    (expected,) = train(training, engine=engine)
    with off():
        (found,) = train(training, engine=engine)
    assert found.scores == expected.scores
    assert found.model is not None
    assert not next(found.model.net.parameters()).is_inference()


def test_alignments_map_the_last_axis_of_images() -> None:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(60, 2, 3))
    tasks = [Task(name, X, X[:, i].sum(axis=1), split=np.repeat(["train", "valid"], 30)) for i, name in enumerate("ab")]
    (trained,) = train(Training(tasks, "mlp", 4, align="joint", epochs=2))
    assert trained.model is not None and trained.model.net.align is not None
    assert trained.model.net.align[0].R.shape == (3, 3)
    with pytest.raises(InputError, match="no stacked step"):
        train(Training(tasks, "mlp", 4, align="joint", epochs=2), engine="bank")


def test_a_gap_where_training_had_none_reads_as_the_train_mean(shared: TaskSet) -> None:
    (trained,) = train(Training(shared, "mlp", 3, epochs=2))
    X = np.asarray(shared["r"].X)[:4].copy()
    filled = X.copy()
    X[:, 1], filled[:, 1] = np.nan, np.asarray(shared["r"].X)[shared["r"].split == "train", 1].mean()
    np.testing.assert_allclose(trained.predict("r", X), trained.predict("r", filled), atol=1e-6)


def test_one_value_is_no_grid() -> None:
    with pytest.raises(InputError, match=r"lr=0\.1 is one value"):
        Grid(lr=0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="trunk='mlp' is one value"):
        Grid(trunk="mlp")
