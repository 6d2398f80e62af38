"""One by one: the bank's own numbers, text trunks, users' modules, exact resume, workers and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mtlens import Task, TaskSet, Training, train
from mtlens.engine import workers
from mtlens.engine.checkpoints import load_tree, save_tree
from mtlens.engine.prepare import Preparation
from mtlens.engine.result import Trained
from mtlens.engine.saving import load_trained, trained_identity
from mtlens.engine.solo import CHECKPOINT, SoloRun, train_solo
from mtlens.errors import FileError, InputError, UnknownNameError
from mtlens.features.vectors import EmbeddingTable
from mtlens.nets.text_families import TextFamily

WORDS = np.array(["the", "film", "was", "good", "bad", "dull", "great", "very", "not", "a", "plot"])


def text_task(name: str, rows: int, seed: int, kind: str = "binary") -> Task:
    draws = np.random.default_rng(seed)
    texts = [" ".join(draws.choice(WORDS, size=draws.integers(0, 9))) for _ in range(rows)]
    mood = np.array([t.count("good") + t.count("great") - t.count("bad") - t.count("dull") for t in texts])
    y = (mood > 0).astype(float) if kind == "binary" else np.sign(mood) + 1.0
    split = draws.choice(["train", "valid", "test"], rows, p=[0.6, 0.2, 0.2])
    return Task(name, texts, y, kind=kind, split=split)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def texts() -> TaskSet:
    return TaskSet([text_task("mood", 60, 0), text_task("stars", 45, 1, "multiclass")])


@pytest.fixture(scope="module")
def vectors() -> EmbeddingTable:
    numbers = np.random.default_rng(3).normal(size=(len(WORDS), 7)).astype(np.float32)
    return EmbeddingTable(tuple(WORDS.tolist()), numbers)


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    assert trained.model is not None
    return dict(trained.model.net.state_dict())


def apart(one: Trained, other: Trained) -> float:
    """Largest difference of any parameter or score."""
    a, b = weights(one), weights(other)
    assert set(a) == set(b)
    assert one.scores.keys() == other.scores.keys()
    gaps = [float((a[k] - b[k]).abs().max()) for k in a if a[k].numel()]
    gaps += [abs(one.scores[s][t] - other.scores[s][t]) for s in one.scores for t in one.scores[s]]
    return float(np.nanmax(gaps))


def module(capacity: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, capacity), nn.Tanh(), nn.Linear(capacity, 3))


METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {"steps": "mixed"},
    "uncertainty": {"weighting": "uncertainty"},
    "uncertainty, mixed": {"weighting": "uncertainty", "steps": "mixed"},
    "random": {"weighting": "random"},
    "numbers": {"weighting": [1.0, 2.0, 0.5]},
    "joint alignment": {"align": "joint", "penalty": 0.1},
    "low-rank alignment": {"align": "joint", "align_rank": 2, "steps": "mixed"},
    "fixed alignment": {"align": "fixed"},
    "sgd": {"optimizer": "sgd"},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "heads only": {"freeze": ("trunk",)},
    "converged": {"stop": "converged", "patience": 1},
}


@pytest.mark.medium
@pytest.mark.parametrize("data", ["shared", "separate"])
def test_users_trunks_stack_and_equal_one_by_one(data: str, request: pytest.FixtureRequest) -> None:
    tasks = request.getfixturevalue(data)
    trainings = [
        Training(tasks, module, 5, epochs=4, lr=0.01, batch=16, dtype="float64", **settings)
        for settings in METHODS.values()
    ]
    stacked, solo = train(trainings, engine="bank"), train(trainings, engine="solo")
    for name, one, other in zip(METHODS, stacked, solo, strict=True):
        assert one.reason == other.reason, name
        assert apart(one, other) < 1e-10, name


@pytest.mark.medium
@pytest.mark.parametrize("family", ["lstm", "cnn", "average"])
def test_text_families_train_alike_in_any_company(family: str, texts: TaskSet, vectors: EmbeddingTable) -> None:
    """Every method, with learned and with pretrained embeddings, in workers and one by one."""
    methods = [
        {}, {"steps": "joint"}, {"weighting": "uncertainty"}, {"weighting": "random"}, {"align": "joint"},
        {"align": "fixed"}, {"weighting": "UPGrad"},
    ]  # fmt: skip
    trunks = [TextFamily(family, width=6), TextFamily(family, vectors=vectors)]
    trainings = [
        Training(texts, trunk, 4, epochs=2, lr=0.02, batch=8, dtype="float64", **settings)
        for settings in methods
        for trunk in trunks
    ]
    together = train(trainings, workers=2)
    for training, one in zip(trainings, together, strict=True):
        assert one.reason == "epochs"
        assert apart(one, train([training], engine="solo")[0]) < 1e-10


@pytest.mark.parametrize("mode", ["frozen", "dense", "rowwise"])
def test_embeddings_move_only_when_trained(mode: Any, texts: TaskSet, vectors: EmbeddingTable) -> None:
    family = TextFamily("cnn", embeddings=mode, vectors=vectors)
    training = Training(texts, family, 4, epochs=2, lr=0.01, dtype="float64")
    run = SoloRun(Preparation().member(training))
    before = run.net.trunk.embedding.weight.detach().clone()
    run.epoch()
    assert torch.equal(before, run.net.trunk.embedding.weight) == (mode == "frozen")
    assert not run.net.trunk.embedding.weight[0].any()


def test_rowwise_is_another_algorithm(texts: TaskSet, vectors: EmbeddingTable) -> None:
    dense, rowwise = (
        train(Training(texts, TextFamily("cnn", embeddings=mode, vectors=vectors), 3, epochs=3, dtype="float64"))[0]
        for mode in ("dense", "rowwise")
    )
    assert apart(dense, rowwise) > 1e-8


def test_fine_tuned_tables_need_adam(texts: TaskSet) -> None:
    with pytest.raises(InputError, match="trained by Adam only"):
        train(Training(texts, "average", 3, optimizer="sgd"))


@pytest.mark.parametrize(
    "settings",
    [
        {"weighting": "uncertainty"},
        {"weighting": "FAMO"},
        {"weighting": "DWA"},
        {"weighting": "PCGrad"},
        {"align": "joint", "steps": "mixed"},
        {"trunk": lambda c: nn.Sequential(nn.Linear(6, c), nn.BatchNorm1d(c), nn.Dropout(0.3)), "optimizer": "sgd"},
    ],
)
def test_resume_is_bitwise_exact(settings: dict[str, Any], shared: TaskSet, tmp_path: Path) -> None:
    training = Training(shared, **{"capacity": 5, "epochs": 6, "lr": 0.01, "batch": 16, **settings})
    member = Preparation().member(training)
    whole = train_solo(member)

    seen = 0

    def stop_after_three(_samples: int) -> bool:
        nonlocal seen
        seen += 1
        return seen < 3

    part = train_solo(Preparation().member(training), folder=tmp_path, every=0.0, on_epoch=stop_after_three)
    assert part.reason == "interrupted"
    torch.manual_seed(12345)  # whatever else draws meanwhile must not matter
    rest = train_solo(Preparation().member(training), folder=tmp_path, every=0.0)
    assert rest.reason == "epochs"
    assert apart(whole, rest) == 0.0
    assert np.array_equal(whole.history["loss"], rest.history["loss"])
    assert rest.seconds > 0


def test_text_training_resumes_bitwise(texts: TaskSet, tmp_path: Path) -> None:
    for mode in ("dense", "rowwise"):
        training = Training(texts, TextFamily("cnn", embeddings=mode, width=5), 3, epochs=4)
        whole = train_solo(Preparation().member(training))
        run = SoloRun(Preparation().member(training))
        run.epoch()
        run.epoch()
        run.save(tmp_path / mode, 1.0)
        rest = train_solo(Preparation().member(training), folder=tmp_path / mode)
        assert apart(whole, rest) == 0.0


def test_a_checkpoint_of_another_training_is_refused(shared: TaskSet, tmp_path: Path) -> None:
    training = Training(shared, capacity=3, epochs=2)
    SoloRun(Preparation().member(training)).save(tmp_path, 0.0)
    with pytest.raises(InputError, match="the checkpoint belongs to training"):
        train_solo(Preparation().member(training.but(seed=1)), folder=tmp_path)


def test_a_state_of_another_shape_is_not_read(texts: TaskSet, tmp_path: Path) -> None:
    """States before tables and the rest had one optimizer were called "solo"; what fits no more is a sentence."""
    training = Training(texts, TextFamily("cnn", embeddings="dense", width=5), 3, epochs=1)
    run = SoloRun(Preparation().member(training))
    save_tree(tmp_path, {"seconds": 1.0, "run": run.state() | {"optimizers": [{}, {}]}}, name="solo")
    assert train_solo(Preparation().member(training), folder=tmp_path).ok
    for broken in ({"optimizers": [{}, {}]}, {"turns": ["one"]}, {"tracker": 3}):
        save_tree(tmp_path, {"seconds": 1.0, "run": run.state() | broken}, name=CHECKPOINT)
        with pytest.raises(FileError, match="Delete it to train from the start"):
            train_solo(Preparation().member(training), folder=tmp_path)


def test_dropout_draws_from_the_trainings_own_stream(shared: TaskSet) -> None:
    training = Training(shared, lambda c: nn.Sequential(nn.Linear(6, c), nn.Dropout(0.5)), 5, epochs=2)
    torch.manual_seed(0)
    one = train(training)[0]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert apart(one, train(training)[0]) == 0.0
    assert torch.equal(before, torch.get_rng_state())


class TinyTransformer(nn.Module):
    """A frozen encoder, then a body to train: the paper's GLUE system in small."""

    out_features = 6

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder.requires_grad_(False)
        self.body = nn.Sequential(nn.Linear(4, capacity), nn.ReLU(), nn.Linear(capacity, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.encoder(x).mean(1))


@pytest.fixture(scope="module")
def sequences() -> TaskSet:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(80, 3, 4))
    Y = np.stack([X.sum((1, 2)), X[:, 0, 0]], 1)
    return TaskSet.from_arrays(X, Y, names=["sum", "first"], kind="regression", split=["train", "valid"] * 40)


def test_alignment_stands_between_a_frozen_encoder_and_the_rest(sequences: TaskSet) -> None:
    settings: dict[str, Any] = {"epochs": 3, "lr": 0.01, "dtype": "float64", "select": "last"}
    training = Training(sequences, TinyTransformer, 5, align="joint", align_at="body", **settings)
    member = Preparation().member(training)
    trained = train(training)[0]
    own, start = weights(trained), dict(SoloRun(member).net.state_dict())
    assert own["align.0.R"].shape == (4, 4)
    assert not torch.equal(own["align.0.R"], torch.eye(4, dtype=torch.float64))
    assert not torch.equal(own["align.0.R"], own["align.1.R"])
    encoder = [name for name in own if ".encoder." in name]
    assert encoder
    assert all(torch.equal(own[name], start[name]) for name in encoder)
    body = [name for name in own if ".body." in name]
    assert not any(torch.equal(own[name], start[name]) for name in body)


def test_a_shared_part_held_fixed_gets_no_gradient_at_all(sequences: TaskSet) -> None:
    class Open(TinyTransformer):
        def __init__(self, capacity: int) -> None:
            super().__init__(capacity)
            self.encoder.requires_grad_(True)

    run = SoloRun(Preparation().member(Training(sequences, Open, 5, freeze="trunk.encoder", epochs=1)))
    run.epoch()
    assert all(p.grad is None for p in run.net.trunk.encoder.parameters())
    assert all(p.grad is not None for p in run.net.trunk.body.parameters())
    with pytest.raises(UnknownNameError, match=r"Did you mean 'trunk.encoder'"):
        train(Training(sequences, Open, 5, freeze="trunk.encodr", epochs=1))


def test_an_alignment_before_a_part_that_takes_no_features_is_refused(texts: TaskSet) -> None:
    with pytest.raises(InputError, match="needs a floating tensor"):
        train(Training(texts, "cnn", 3, align="joint", align_at="embedding"))


def test_torchjd_needs_joint_steps(separate: TaskSet) -> None:
    assert Training(separate, weighting="UPGrad").joint
    with pytest.raises(InputError, match="steps='mixed' shows one"):
        Training(separate, weighting="UPGrad", steps="mixed")


def test_a_loss_that_explodes_ends_with_its_reason(texts: TaskSet) -> None:
    trained = train(Training(texts, "cnn", 3, lr=1e30, epochs=3))[0]
    assert trained.reason.startswith("loss not finite in epoch")
    assert trained.model is None
    assert not trained.scores


@pytest.mark.parametrize("family", ["linear", "relu", "mlp", "lstm", "cnn", "average"])
def test_folders_hold_whole_trainings(family: str, shared: TaskSet, texts: TaskSet, tmp_path: Path) -> None:
    tasks = texts if family in ("lstm", "cnn", "average") else shared
    (trained,) = train(Training(tasks, family, 4, align="joint", epochs=1))
    trained.save(tmp_path)
    loaded = load_trained(tmp_path)
    assert loaded.scores == trained.scores
    assert loaded.identity == trained.identity == trained_identity(tmp_path)
    for task in tasks:
        assert np.array_equal(loaded.predict(task.name, task.X), trained.predict(task.name, task.X))
    assert {f.suffix for f in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_a_training_starts_from_a_folder(shared: TaskSet, tmp_path: Path) -> None:
    (source,) = train(Training(shared, "mlp", 4, epochs=2, dtype="float64"))
    source.save(tmp_path)
    settings = {"epochs": 2, "dtype": "float64"}
    by_path = train(Training(shared, "mlp", 4, start_from=str(tmp_path), **settings))[0]
    by_hand = train(Training(shared, "mlp", 4, start_from=source, **settings))[0]
    assert apart(by_path, by_hand) == 0.0
    assert by_path.identity == by_hand.identity
    continued = load_trained(tmp_path).training.but(tasks=shared, epochs=1, start_from=tmp_path)
    assert train(continued)[0].reason == "epochs"


def test_folders_of_users_trunks_take_the_factory(shared: TaskSet, tmp_path: Path) -> None:
    (trained,) = train(Training(shared, module, 4, epochs=1))
    trained.save(tmp_path)
    with pytest.raises(InputError, match="Give its factory"):
        load_trained(tmp_path)
    with pytest.raises(InputError, match="do not fit the model"):
        load_trained(tmp_path, trunk=lambda capacity: nn.Linear(6, capacity))
    assert load_trained(tmp_path, trunk=module).scores == trained.scores
    assert train(Training(shared, module, 4, epochs=1, start_from=tmp_path))[0].ok


def test_other_folders_are_refused(tmp_path: Path, shared: TaskSet) -> None:
    with pytest.raises(FileError, match="no saved state"):
        load_trained(tmp_path)
    with pytest.raises(FileError, match="no saved state"):
        Training(shared, start_from=str(tmp_path / "nowhere")).identity  # noqa: B018


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("settings", "capacity"), -1),
        (("settings", "dtype"), "int8"),
        (("settings", "trunk"), 3),
        (("model", "net", "heads"), []),
        (("model", "net", "heads"), [[10**9, 10**9]] * 3),
        (("model",), 3),
        (("scores",), 3),
        (("history",), None),
        (("identity",), 3),
    ],
)
def test_a_folder_rewritten_with_care_is_refused(
    shared: TaskSet, tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    """Right checksums, wrong content: a sentence, no traceback and no memory."""
    train(Training(shared, "mlp", 3, epochs=1))[0].save(tmp_path)
    tree = load_tree(tmp_path, name="trained")
    part = tree
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    save_tree(tmp_path, tree, name="trained")
    with pytest.raises((FileError, InputError), match=r"not hold a finished training|settings it was saved with"):
        load_trained(tmp_path)
    save_tree(tmp_path, [1], name="trained")
    with pytest.raises(FileError, match="does not hold a finished training"):
        Training(shared, "mlp", 3, start_from=tmp_path).identity  # noqa: B018


def test_starts_with_other_or_no_parameters_are_refused(shared: TaskSet) -> None:
    (source,) = train(Training(shared, "mlp", 4, epochs=1))
    with pytest.raises(InputError, match=r"biases\.0.*Use the same trunk"):  # it would have dropped the biases
        train(Training(shared, "relu", 4, start_from=source))
    (bare,) = train(Training(shared, "mlp", 4, epochs=1), keep="scores")
    with pytest.raises(InputError, match="kept no model, so there is nothing to start from"):
        Training(shared, "mlp", 4, start_from=bare)
    with pytest.raises(InputError, match="read from a folder, found None"):
        load_trained(None)  # type: ignore[arg-type]


def test_a_second_call_reads_what_is_finished(
    shared: TaskSet, texts: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = [Training(shared, "mlp", 4, epochs=2), Training(texts, "cnn", 3, epochs=2)]
    first = train(trainings, checkpoints=tmp_path, keep="predictions")
    monkeypatch.setattr(SoloRun, "epoch", lambda _: pytest.fail("trained again"))
    again = train(trainings, checkpoints=tmp_path, keep="predictions")
    for one, other in zip(first, again, strict=True):
        assert apart(one, other) == 0.0
        assert one.predictions is not None
        assert other.predictions is not None
        for split, own in one.predictions.items():
            for name, values in own.items():
                assert np.allclose(values, other.predictions[split][name], atol=1e-6)
    assert train(trainings, checkpoints=tmp_path, keep="scores")[1].model is None
    assert not list(tmp_path.rglob(f"{CHECKPOINT}.json"))


def test_a_trunk_that_cannot_stack_says_why_once(shared: TaskSet, caplog: pytest.LogCaptureFixture) -> None:
    def noisy(capacity: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, capacity), nn.BatchNorm1d(capacity))

    train([Training(shared, noisy, 3, epochs=1, seed=seed) for seed in range(3)], workers=1)
    train([Training(shared, module, 3, epochs=1, seed=seed) for seed in range(3)], workers=1)
    (record,) = caplog.records
    assert "noisy" in record.message
    assert "trained one by one, since it has buffers (1.running_mean) (3 trainings)" in record.message


def test_two_lambdas_of_one_name_are_two_trunks(shared: TaskSet) -> None:
    factories = [lambda c, wide=wide: nn.Linear(6, wide * c) for wide in (1, 2)]
    one, two = (Training(shared, factory, 3, epochs=1) for factory in factories)
    assert one.identity != two.identity
    assert one.identity == Training(shared, factories[0], 3, epochs=1).identity
    shapes = [t.model.net.heads[0].in_features for t in train([one, two]) if t.model is not None]
    assert shapes == [3, 6]


# Workers -------------------------------------------------------------------------------------------------------------


def several(texts: TaskSet) -> list[Training]:
    return [Training(texts, "cnn", 3, epochs=2, seed=seed, dtype="float64") for seed in range(5)]


def test_threads_and_one_by_one_agree(texts: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked workers: ``test_forking.py``."""
    solo = train(several(texts), engine="solo")
    monkeypatch.setattr(workers, "can_fork", lambda: False)
    threaded = train(several(texts), workers=2)
    for one, two in zip(solo, threaded, strict=True):
        assert apart(one, two) < 1e-10


def test_a_threads_error_is_the_callers(texts: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Trained:
        raise InputError("no such thing")

    monkeypatch.setattr(workers, "can_fork", lambda: False)
    monkeypatch.setattr(workers, "train_solo", refused)
    with pytest.raises(InputError, match="no such thing"):
        train(several(texts), workers=2)


def test_ctrl_c_keeps_what_is_finished(texts: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = workers.train_solo, 0

    def interrupted(member: Any, **settings: Any) -> Trained:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return real(member, **settings)

    monkeypatch.setattr(workers, "train_solo", interrupted)
    trained = train(several(texts), engine="solo")
    assert [one.reason for one in trained] == ["epochs", "epochs", "interrupted", "interrupted", "interrupted"]


# Frozen averages and stacked LSTMs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"align": "joint"}, {"weighting": "svd", "capacity": 2}, {"steps": "joint"}])
def test_frozen_averages_are_computed_once_and_stacked(
    settings: dict[str, Any], texts: TaskSet, vectors: EmbeddingTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = {"capacity": 4, "epochs": 3, "dtype": "float64", **settings}
    training = Training(texts, TextFamily("average", vectors=vectors), **settings)
    (short,) = train(training, engine="bank")
    assert apart(short, train(training, engine="solo")[0]) < 1e-10
    short.save(tmp_path)
    loaded = load_trained(tmp_path)
    monkeypatch.setattr(TextFamily, "averages", lambda *_: False)
    (whole,) = train(training)
    for task in texts:
        assert np.allclose(short.predict(task.name, task.X), whole.predict(task.name, task.X), atol=1e-10)
        assert np.allclose(loaded.predict(task.name, task.X), whole.predict(task.name, task.X), atol=1e-10)


def test_svd_weights_need_vectors(texts: TaskSet) -> None:
    with pytest.raises(InputError, match="have no vectors"):
        train(Training(texts, "cnn", 2, weighting="svd"))


@pytest.mark.medium
def test_stacked_lstms_are_those_one_by_one(
    texts: TaskSet, vectors: EmbeddingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack that a GPU runs, on the CPU: every method it takes, several widths and seeds."""
    methods = [{}, {"steps": "joint"}, {"weighting": "uncertainty"}, {"weighting": "random"}, {"weighting": "svd"}]
    trunk = TextFamily("lstm", vectors=vectors)
    trainings = [
        Training(texts, trunk, 3 + seed, epochs=2, lr=0.02, batch=8, seed=seed, dtype="float64", **method)
        for method in methods
        for seed in range(2)
    ]
    others = TaskSet([text_task("mood", 40, 5), text_task("stars", 50, 6, "multiclass"), text_task("more", 30, 7)])
    for names in (["mood"], ["more"], ["mood", "stars"], ["mood", "more"]):  # other vocabularies in the same stacks
        trainings.append(Training(others.subset(names), trunk, 3, epochs=2, lr=0.02, batch=8, dtype="float64"))
    solo = train(trainings, engine="solo")
    monkeypatch.setattr(TextFamily, "stacks_on", lambda *_: True)
    stacked = train(trainings, engine="bank")
    for one, other in zip(solo, stacked, strict=True):
        assert apart(one, other) < 1e-10
