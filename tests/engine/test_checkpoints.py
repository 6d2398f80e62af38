"""Saved state: exact, replaced in one step, and refused once it is damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.engine.checkpoints import check_state_dict, has_tree, load_tree, save_tree
from mtlens.errors import FileError, InputError

TREE = {
    "epoch": 3,
    0: {"step": torch.tensor(4.0), "moments": torch.randn(3, 2, dtype=torch.float64)},
    "losses": [0.5, math.inf, -math.inf],
    "betas": (0.9, 0.999),
    "none": None,
    "flag": True,
    "order": np.arange(5),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
    "nothing": {},
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))  # type: ignore[arg-type]
    return type(a) is type(b) and (a == b or (a != a and b != b))


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(tree=trees)
def test_any_plain_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    folder = tmp_path_factory.mktemp("tree")
    save_tree(folder, tree)
    assert same(load_tree(folder), tree)


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    save_tree(tmp_path / "new" / "folder", TREE)
    assert same(load_tree(tmp_path / "new" / "folder"), TREE)


def test_a_second_state_replaces_the_first_and_leaves_one_tensor_file(tmp_path: Path) -> None:
    save_tree(tmp_path, {"a": torch.zeros(2)})
    save_tree(tmp_path, {"a": torch.ones(2)}, name="other")
    save_tree(tmp_path, {"a": torch.ones(3)})
    assert torch.equal(load_tree(tmp_path)["a"], torch.ones(3))
    assert torch.equal(load_tree(tmp_path, name="other")["a"], torch.ones(2))
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interrupted_write_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tree(tmp_path, TREE)
    replace = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if str(target).endswith(".json"):
            raise OSError("disk full")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FileError, match="disk full"):
        save_tree(tmp_path, {"epoch": 4, "w": torch.zeros(9)})
    assert same(load_tree(tmp_path), TREE)
    assert not list(tmp_path.glob(".*"))


def edit(folder: Path, change: object) -> None:
    file = folder / "state.json"
    record = json.loads(file.read_text())
    change(record)  # type: ignore[operator]
    file.write_text(json.dumps(record))


def rewrite(folder: Path, change: object) -> None:
    """Edit the record and repair its checksum, as someone who means it would."""
    from mtlens.engine.checkpoints import _checksum

    file = folder / "state.json"
    record = json.loads(file.read_text())
    record.pop("checksum")
    change(record)  # type: ignore[operator]
    file.write_text(json.dumps({**record, "checksum": _checksum(record)}))


def test_tampering_is_refused(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        save_tree(tmp_path / name, TREE)
        return tmp_path / name

    folder = fresh("json")
    edit(folder, lambda r: r["content"]["dict"][0].__setitem__(1, 99))
    with pytest.raises(FileError, match="checksum"):
        load_tree(folder)

    folder = fresh("bits")
    file = next(folder.glob("*.safetensors"))
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(bytes(body))
    with pytest.raises(FileError, match="content has changed"):
        load_tree(folder)

    folder = fresh("cut")
    file = next(folder.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(FileError, match="bytes that was written"):
        load_tree(folder)

    folder = fresh("path")
    rewrite(folder, lambda r: r["tensors"].update(file="../state-0123456789abcdef.safetensors"))
    with pytest.raises(FileError, match="not a plain file name"):
        load_tree(folder)

    folder = fresh("shape")
    rewrite(folder, lambda r: r["tensors"]["entries"]["/empty"].__setitem__(1, [3, 0]))
    with pytest.raises(FileError, match="shapes differ"):
        load_tree(folder)

    folder = fresh("content")
    rewrite(folder, lambda r: r.update(content={"tensor": "nowhere"}))
    with pytest.raises(FileError, match="does not fit"):
        load_tree(folder)

    folder = fresh("format")
    rewrite(folder, lambda r: r.update(format="mtlens-state-9"))
    with pytest.raises(FileError, match="this version reads"):
        load_tree(folder)

    folder = fresh("nojson")
    (folder / "state.json").write_text("{")
    with pytest.raises(FileError, match="not JSON"):
        load_tree(folder)

    folder = fresh("link")
    file = next(folder.glob("*.safetensors"))
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="not the file"):
        load_tree(folder)


def test_a_missing_state_is_said(tmp_path: Path) -> None:
    assert not has_tree(tmp_path)
    with pytest.raises(FileError, match="no saved state at"):
        load_tree(tmp_path)


def test_what_would_need_pickle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/model/0 holds a function"):
        save_tree(tmp_path, {"model": [test_a_missing_state_is_said]})
    with pytest.raises(InputError, match="neither text nor whole numbers"):
        save_tree(tmp_path, {(1, 2): 3})


def test_state_dicts_are_checked_before_use() -> None:
    layer = torch.nn.Linear(3, 2)
    good = layer.state_dict()
    check_state_dict(good, good, "here")
    with pytest.raises(InputError, match="missing: \\['bias'\\]"):
        check_state_dict({"weight": good["weight"]}, good, "here")
    with pytest.raises(InputError, match=r"'weight' was saved as torch.float32 \(3, 2\)"):
        check_state_dict({**good, "weight": good["weight"].T}, good, "here")
