"""Files read in blocks equal the same files read whole."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlens.errors import FileError, InputError
from mtlens.tasks.blocks import SUFFIXES, read_blocks
from mtlens.tasks.table import ColumnKind, Table

KINDS: dict[str, ColumnKind] = {"a": "number", "city": "category", "say": "text", "id": "text"}


def columns(rows: int = 25) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    return {
        "id": [f"{i:03d}" for i in range(rows)],
        "a": [None if i % 7 == 3 else float(v) for i, v in enumerate(rng.normal(size=rows))],
        "city": [["Rome", "New York", None][i % 3] for i in range(rows)],
        "say": [f'he said "no", {i}\nand left' for i in range(rows)],
    }


def write(path: Path, data: dict[str, list[Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = path.name.split(".")[1]
    if kind == "parquet":
        pq.write_table(pa.table(data), path, row_group_size=7)
        return path
    rows = list(zip(*data.values(), strict=True))
    if kind == "jsonl":
        text = "\n".join(json.dumps(dict(zip(data, row, strict=True))) for row in rows) + "\n"
    else:
        cells = [
            list(data),
            *[["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows],
        ]
        text = "\n".join(",".join('"' + str(c).replace('"', '""') + '"' for c in row) for row in cells) + "\n"
    body = text.encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def whole(path: Path, rows: int, kinds: dict[str, ColumnKind] | None = None) -> dict[str, list[Any]]:
    blocks = list(read_blocks(path, KINDS if kinds is None else kinds, rows=rows))
    assert [block.start for block in blocks] == list(np.cumsum([0, *[len(b) for b in blocks[:-1]]]))
    assert all(len(block) == rows for block in blocks[:-1]) and 0 < len(blocks[-1]) <= rows
    found: dict[str, list[Any]] = {}
    for block in blocks:
        assert isinstance(block.X, Table)
        for name in block.X.names:
            values = block.X[name].tolist()
            found.setdefault(name, []).extend(None if v != v else v for v in values)
    return found


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.parquet", "d.jsonl", "d.jsonl.gz"])
@pytest.mark.parametrize("rows", [1, 7, 25, 4096])
def test_any_block_size_gives_the_same_columns(tmp_path: Path, name: str, rows: int) -> None:
    data = columns()
    assert whole(write(tmp_path / name, data), rows) == data


def test_rows_that_straddle_what_is_parsed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtlens.tasks.blocks._PARSED", 64)
    data = columns(60)
    assert whole(write(tmp_path / "d.csv", data), 7) == data


def test_values_as_training_reads_them(tmp_path: Path) -> None:
    from mtlens.tasks.readers import read_tasks

    (tmp_path / "t.csv").write_text(
        "day,ok,n,code,label\n"
        + "".join(
            f"2020-01-{1 + i % 9:02d},{'true' if i % 2 else 'false'}, {i}.5,c{i % 3},{i % 2}\n" for i in range(30)
        )
    )
    task = read_tasks(tmp_path / "t.csv", "label")[0]
    assert isinstance(task.X, Table)
    found = whole(tmp_path / "t.csv", 8, dict(task.X.kinds))
    for name in task.X.names:
        assert found[name] == task.X[name].tolist()


def test_decimal_commas_as_training_reads_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\nNA;y\n-2;z\n")
    assert whole(tmp_path / "t.csv", 2, {"a": "number"}) == {"a": [1.5, None, -2.0], "b": ["x", "y", "z"]}


def test_npz(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "x.npz", X=X, feature_names=["a", "b"], id=np.arange(6))
    found = whole(tmp_path / "x.npz", 4, {"a": "number", "b": "number", "id": "text"})
    assert found == {"id": list("012345"), "a": X[:, 0].tolist(), "b": X[:, 1].tolist()}
    np.savez(tmp_path / "c.npz", a=X[:, 0], city=np.array(["x"] * 6))
    assert whole(tmp_path / "c.npz", 4)["city"] == ["x"] * 6
    np.savez(tmp_path / "g.npz", X=X, feature_names=["a", "b"], city=np.array(["x", "", "y", " ", "x", "y"]))
    found = whole(tmp_path / "g.npz", 4, {"a": "number", "b": "number", "city": "category"})
    assert found["city"] == ["x", None, "y", None, "x", "y"]  # gaps, as in every other format
    np.savez(tmp_path / "i.npz", images=np.zeros((5, 2, 2)))
    assert [b.X.shape for b in read_blocks(tmp_path / "i.npz", {}, rows=3)] == [(3, 2, 2), (2, 2, 2)]  # type: ignore[union-attr]


def test_json_lines_with_keys_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"a": 1, "city": "x"}\n\n{"city": "y", "id": 7}\n{"a": true}\n')
    assert whole(tmp_path / "d.jsonl", 2) == {"a": [1.0, None, 1.0], "city": ["x", "y", None], "id": [None, "7", None]}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("d.csv", "a,city\n1,x\nlots,y\n", "column 'a': row 1 .counted from 0. holds 'lots'"),
        ("d.csv", "a,city\n" + "1,x\n" * 300 + "lots,y\n", "column 'a': 'lots'"),
        ("d.csv", "a,city\n2024-01-31,x\nlots,y\n", "column 'a': row 1 .counted from 0. holds 'lots'"),
        ("d.csv", "a,city\n1,x\n1,2,3\n", "has 3 values where the first line has 2"),
        ("d.csv", "a,a\n1,2\n", "more than once: a"),
        ("d.csv", "a,city\n", "holds no rows to predict"),
        ("d.csv", "", "is empty"),
        ("d.jsonl", "{\n", "line 1 is not JSON"),
        ("d.jsonl", "[1]\n", "not an object"),
        ("d.jsonl", '{"a": [1]}\n', "'a' in row 0 is"),
        ("d.jsonl", "\n", "holds no rows"),
        ("d.parquet", "PAR1", "not a readable Parquet"),
        ("d.npz", "PK", "not a readable .npz"),
        ("d.xlsx", "x", "is no format mtlens predicts from"),
        ("d.csv.gz", "x", "not a whole .gz"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((FileError, InputError), match=said):
        list(read_blocks(tmp_path / name, KINDS))


def test_random_bytes_end_in_a_sentence(tmp_path: Path) -> None:
    """No file makes anything but rows or one of our errors."""
    rng = np.random.default_rng(0)
    seeds = {s: write(tmp_path / f"seed{s}", columns()).read_bytes() for s in (".csv", ".jsonl", ".parquet")}
    for number in range(150):
        suffix = SUFFIXES[number % len(SUFFIXES)]
        body = bytearray(seeds.get(suffix, rng.bytes(200)))
        for place in rng.integers(0, len(body), 5):
            body[place] = rng.integers(256)
        path = tmp_path / f"d{suffix}"
        path.write_bytes(body)
        with contextlib.suppress(FileError, InputError):
            assert sum(len(block) for block in read_blocks(path, KINDS, rows=7))


def test_numbers_among_texts_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"city": 1234567.0}\n{"city": 0.1}\n{"city": null}\n{"city": "x"}\n')
    assert whole(tmp_path / "d.jsonl", 4)["city"] == ["1234567", "0.1", None, "x"]


def test_categories_of_digits_are_the_same_in_training_and_prediction(tmp_path: Path) -> None:
    from mtlens.tasks.readers import read_tasks

    path = tmp_path / "d.csv"
    path.write_text("code,x,label\n" + "".join(f"{i % 3:03d},{i},{i % 2}\n" for i in range(12)))
    task = read_tasks(path, categories=["code"])[0]
    assert isinstance(task.X, Table)
    assert task.X["code"].tolist() == whole(path, 5, dict(task.X.kinds))["code"] == ["000", "001", "002"] * 4
