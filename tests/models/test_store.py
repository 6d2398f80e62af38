"""A model's folder: the same bits after a round trip, and refusal of everything that was changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtlens import Task, TaskSet, fit, load_model
from mtlens.engine.checkpoints import load_tree, save_tree
from mtlens.errors import FileError, MtlensError
from mtlens.models.model import Model
from mtlens.models.system import Grid, System


@pytest.fixture(scope="module")
def saved(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_same_bits_after_a_round_trip(tasks: TaskSet, model: Model, saved: Path) -> None:
    loaded = load_model(saved)
    again = load_model(loaded.save(saved.parent / "again"))
    for other in (loaded, again):
        found = other.predict(tasks[0])
        for name, values in model.predict(tasks[0]).items():
            assert values.dtype == found[name].dtype and np.array_equal(values, found[name])
        bounds = other.intervals(tasks[0], "half")
        assert np.array_equal(bounds, model.intervals(tasks[0], "half"))
        assert other.system == model.system and other.notes == model.notes
        assert other.tasks["grade"].classes == model.tasks["grade"].classes
    assert (saved / "model.json").read_bytes() == (saved.parent / "again" / "model.json").read_bytes()


@pytest.mark.medium
@pytest.mark.parametrize("trunk", ["lstm", "average", "mlp"])
def test_networks_on_texts_survive_too(trunk: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", "film", "book", "it"], 5)) for _ in range(40)]
    task = Task("likes", texts, [("good" in t) * 1.0 for t in texts])
    grid = Grid(trunk=trunk, capacities=[3], learning_rates=[1e-2], epochs=1)
    model = fit([task], advice=System.alone(["likes"], family="trunk", grid=grid, folds=2), workers=1)
    loaded = load_model(model.save(tmp_path / "m"))
    assert np.array_equal(model.predict(texts, "likes"), loaded.predict(texts, "likes"))


@pytest.mark.medium
def test_networks_share_their_word_vectors_on_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(2000)]
    np.savez(tmp_path / "v.npz", words=np.array(words), vectors=rng.normal(size=(2000, 50)).astype(np.float32))
    texts = [" ".join(rng.choice(words, 5)) for _ in range(40)]
    tasks = [Task(name, texts, rng.permutation(np.arange(40) % 2)) for name in "abc"]
    grid = Grid(trunk="lstm", capacities=[3], learning_rates=[1e-2], epochs=1, vectors=str(tmp_path / "v.npz"))
    model = fit(tasks, advice=System.alone("abc", family="trunk", grid=grid, folds=2), workers=1)
    folder = model.save(tmp_path / "m")
    assert next(folder.glob("*.safetensors")).stat().st_size < 1.5 * 2000 * 50 * 4
    loaded = load_model(folder)
    for name in "abc":
        assert np.array_equal(model.predict(texts, name), loaded.predict(texts, name))


def test_classes_keep_their_type(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    tasks = [
        Task("int", X, np.digitize(X[:, 0], [-0.5, 0.5]) + 3),
        Task("bool", X, X[:, 0] > 0),
        Task("float", X, np.where(X[:, 1] > 0, 0.5, 1.5), kind="binary"),
        Task("text", X, np.where(X[:, 1] > 0, "ja", "näin")),
    ]
    model = fit(tasks, family="linear")
    loaded = load_model(model.save(tmp_path / "m"))
    for task in tasks:
        assert loaded.tasks[task.name].classes == model.tasks[task.name].classes
        assert np.array_equal(loaded.table(X)[task.name], model.table(X)[task.name])


def test_the_folder_holds_tensors_json_and_a_card_with_nothing_live(saved: Path) -> None:
    names = sorted(path.name for path in saved.iterdir())
    assert names[0] == "MODEL.md" and names[1].endswith(".safetensors") and names[2] == "model.json" and len(names) == 3
    card = (saved / "MODEL.md").read_text("utf-8")
    body = card.split("## Advice that was built")[0]
    assert "<i>" not in body and "<b>" not in body and "&lt;b&gt;measured&lt;/b&gt;" in body
    assert "\n,=1+1" not in body
    assert "do not score it" in body
    assert all(line.startswith("    ") or not line for line in card.split("## Advice that was built")[1].splitlines())


def test_a_model_is_replaced_but_nothing_else(model: Model, tmp_path: Path) -> None:
    target = tmp_path / "m"
    model.save(target)
    model.save(target)
    assert names_in(tmp_path) == ["m"]
    (target / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"holds other things \(notes.txt\)"):
        model.save(target)
    assert (target / "notes.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="not a folder"):
        model.save(tmp_path / "file")
    with pytest.raises(FileError, match="cannot be written"):
        model.save(tmp_path / "file" / "m")
    with pytest.raises(FileError, match="cannot be written"):
        model.save(tmp_path / "\0")
    assert names_in(tmp_path) == ["file", "m"]


def test_whoever_may_read_the_card_may_read_the_model(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "m")
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    (tmp_path / "plain").write_text("")
    assert set(modes.values()) == {(tmp_path / "plain").stat().st_mode & 0o777}
    (tmp_path / "folder").mkdir()
    assert folder.stat().st_mode == (tmp_path / "folder").stat().st_mode


def test_a_crash_while_writing_leaves_the_old_model(model: Model, tmp_path: Path, monkeypatch: Any) -> None:
    target = model.save(tmp_path / "m")
    before = (target / "model.json").read_bytes()

    def crash(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mtlens.models.store.card_of", crash)
    with pytest.raises(FileError, match="No space left"):
        model.save(target)
    assert (target / "model.json").read_bytes() == before and names_in(tmp_path) == ["m"]
    load_model(target)


# ---------------------------------------------------------------------- files


def _flip(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def _cut(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8])


def _edit(folder: Path, old: str, new: str) -> None:
    path = folder / "model.json"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def _link(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


def _point_away(folder: Path) -> None:
    record = json.loads((folder / "model.json").read_text("utf-8"))
    record.pop("checksum")
    record["tensors"]["file"] = "../elsewhere.safetensors"
    checksum = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps({**record, "checksum": checksum}), "utf-8")


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a bit": (_flip, "content has changed"),
    "cut": (_cut, "is not the file of"),
    "json": (lambda f: _edit(f, "weight", "wieght"), "checksum is wrong"),
    "not json": (lambda f: (f / "model.json").write_text("{"), "not JSON"),
    "other format": (
        lambda f: (f / "model.json").write_text('{"format": "mtlens-state-9"}'),
        "format is 'mtlens-state-9'",
    ),
    "extra": (lambda f: (f / "model.pkl").write_bytes(b"\x80"), "holds 'model.pkl', which is no part of a model"),
    "no card": (lambda f: (f / "MODEL.md").unlink(), "MODEL.md is missing"),
    "no json": (lambda f: (f / "model.json").unlink(), "model.json is missing"),
    "no tensors": (lambda f: next(f.glob("*.safetensors")).unlink(), "0 tensor files"),
    "two tensors": (lambda f: (f / f"model-{'0' * 16}.safetensors").write_bytes(b""), "2 tensor files"),
    "link": (_link, "is not a plain file"),
    "path": (_point_away, "not a plain file name"),
    "folder": (lambda f: (f / "MODEL.md").unlink() or (f / "MODEL.md").mkdir(), "is not a plain file"),
}


@pytest.mark.parametrize("change", FILES)
def test_changed_files_are_refused(copy: Path, change: str) -> None:
    make, said = FILES[change]
    make(copy)
    with pytest.raises(FileError, match=said):
        load_model(copy)


def test_places_that_hold_no_model(tmp_path: Path) -> None:
    for place in ("nowhere", "", "\0", "x" * 5000):
        with pytest.raises(FileError):
            load_model(tmp_path / place if place != "\0" else place)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "advice.toml").write_text("")
    with pytest.raises(FileError, match=r"is a study's folder\. Make its model first: mtlens fit"):
        load_model(tmp_path / "study")
    (tmp_path / "study" / "advice.toml").unlink()
    (tmp_path / "study").rmdir()
    (tmp_path / ".DS_Store").write_text("")
    with pytest.raises(FileError, match=r"model\.json is missing"):
        load_model(tmp_path)


# ---------------------------------------------------------------------- contents, with good checksums


def _set(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    for part in path[:-1]:
        tree = tree[part]
    tree[path[-1]] = value(tree[path[-1]]) if callable(value) else value


LINEAR = ("tasks", 0, "alone", "model")
NET = ("networks", "each", 0, "net", "net")
CONTENTS: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "format": (("format",), "mtlens-model-2", "format is 'mtlens-model-2'"),
    "coef shape": ((*LINEAR, "coef"), lambda a: a[:-1], "a linear model has shape"),
    "coef columns": ((*LINEAR, "coef"), lambda a: np.repeat(a, 2, 1), "a linear model has shape"),
    "coef dtype": ((*LINEAR, "coef"), lambda a: a.astype(np.float32), "float32 of rank 2"),
    "coef nan": ((*LINEAR, "coef"), lambda a: a * np.nan, "tasks/0/alone/model/coef holds values that are not finite"),
    "coef missing": ((*LINEAR, "coef"), None, "NoneType"),
    "low nan": (("tasks", 0, "low"), float("nan"), "low holds values that are not finite"),
    "weight": (("tasks", 0, "weight"), 1e9, "strange weight"),
    "kind": (("tasks", 0, "kind"), "rank", "is of kind 'rank'"),
    "other kind": (("tasks", 0, "kind"), "binary", "binary with 0 classes"),
    "classes": (("tasks", 2, "classes"), ["a", "b"], "its linear model is multiclass with 3 columns"),
    "space": (("tasks", 0, "space"), 7, "reads space 7"),
    "space text": (("tasks", 0, "space"), "0", "reads space '0'"),
    "errors": (("tasks", 0, "errors"), lambda a: -a, "not sorted"),
    "errors rank": (("tasks", 0, "errors"), lambda a: a[:, None], "rank 2"),
    "schema": (("tasks", 0, "schema", "kinds"), ["number"], "columns and their kinds"),
    "schema kind": (("tasks", 0, "schema", "kinds", 0), "code", "columns and their kinds"),
    "network": (("tasks", 3, "alone", "networks"), [99], "no such network"),
    "no network": (("tasks", 3, "alone", "networks"), [], "has no network"),
    "network task": (("tasks", 3, "alone", "task"), "nobody", "do not fit together"),
    "member": (("tasks", 0, "alone", "kind"), "pickle", "member of kind 'pickle'"),
    "net values": ((*NET, "values"), lambda v: dict(list(v.items())[1:]), "do not fit the model"),
    "net shape": ((*NET, "values"), lambda v: {k: t[:1] for k, t in v.items()}, "was saved as"),
    "net dtype": ((*NET, "values"), lambda v: {k: t.double() for k, t in v.items()}, "is not float32"),
    "net nan": ((*NET, "values"), lambda v: {k: t * torch.nan for k, t in v.items()}, "not finite"),
    "shared array": (("networks", "arrays"), {}, "do not fit together"),
    "capacity": (("networks", "each", 0, "settings", "capacity"), 10**13, "do not fit"),
    "heads": ((*NET, "heads"), [[10**9, 10**9]], "do not fit"),
    "trunk": (("networks", "each", 0, "settings", "trunk"), {"name": "os.system"}, "os.system"),
    "dtype name": (("networks", "each", 0, "settings", "dtype"), "save", "do not fit"),
    "system": (("system",), "version = 1", "has no 'task'"),
    "system name": (("system",), '[[task]]\nname = "x"', "name different tasks"),
    "features class": (("spaces", 0, "features", "meta", "class"), "Popen", "saved features are of class 'Popen'"),
    "features meta": (("spaces", 0, "features", "meta", "block_0", "columns"), [], "do not fit"),
    "features columns": (("spaces", 0, "features", "arrays"), lambda a: {k: v[:1] for k, v in a.items()}, "do not fit"),
    "features gone": (("spaces", 0, "features"), None, "makes no numbers"),
    "no tasks": (("tasks",), [], "different tasks"),
    "no spaces": (("spaces",), None, "do not fit together"),
}


@pytest.mark.parametrize("change", CONTENTS)
def test_changed_contents_are_refused_even_with_good_checksums(copy: Path, change: str) -> None:
    path, value, said = CONTENTS[change]
    tree = load_tree(copy, name="model")
    _set(tree, path, value)
    save_tree(copy, tree, name="model")
    with pytest.raises(MtlensError, match=f"(?s){said}") as caught:
        load_model(copy)
    assert isinstance(caught.value, FileError)


@pytest.mark.parametrize("tensors", [None, 7, {}, {"file": "model-0123456789abcdef.safetensors"}])
def test_a_record_of_another_shape_is_refused(copy: Path, tensors: Any) -> None:
    record = json.loads((copy / "model.json").read_text())
    record["tensors"] = tensors
    del record["checksum"]
    record["checksum"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (copy / "model.json").write_text(json.dumps(record))
    with pytest.raises(FileError):
        load_model(copy)


def test_random_damage_never_gives_a_model_with_other_predictions(
    tasks: TaskSet, model: Model, saved: Path, tmp_path: Path
) -> None:
    """Any flipped byte is refused, or harmless."""
    rng = np.random.default_rng(0)
    files = sorted(path.name for path in saved.iterdir() if path.name != "MODEL.md")
    expected = model.predict(tasks[0])
    refused = 0
    for number in range(40):
        folder = tmp_path / str(number)
        shutil.copytree(saved, folder)
        path = folder / files[number % 2]
        body = bytearray(path.read_bytes())
        body[int(rng.integers(len(body)))] ^= int(rng.integers(1, 256))
        path.write_bytes(body)
        try:
            loaded = load_model(folder)
        except FileError:
            refused += 1
            continue
        assert all(np.array_equal(values, expected[name]) for name, values in loaded.predict(tasks[0]).items())
    assert refused >= 38
