"""Random bytes, tables and specs thrown at the readers: they load or raise an mtlens error, and write nothing."""

from __future__ import annotations

import gzip
import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mtlens.errors import MtlensError
from mtlens.tasks import Splits, TaskSet, find_duplicates, read_tasks
from mtlens.tasks.facts import task_facts

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".toml", ".csv.gz", ".tsv.gz", ".parquet.gz", ".npz.gz")
CELLS = (
    "0",
    "1",
    "2.5",
    "-3e4",
    "",
    "NA",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "abc",
    "a b c",
    '"q,u"',
    '"',
    "'",
    "é",
    "😀",
    "\x00",
    "\u2028",
    "train",
    "test",
    "dev",
    "all",
    "true",
    "2020-01-01",
    "1,5",
    " 7 ",
    "<script>",
    "../x",
    "9" * 400,
    "0x1F",
    "None",
    "\x85",
    "-1",
)
HEADS = ("x", "y", "label", "text", "split", "fold", "id", "x", "", "a b", "ü", "group", '"z"', "1", "label ")
WORDS = (
    "seed = 0",
    "seed = -1",
    "seed = 'a'",
    "margin = 1",
    "margin = nan",
    "[[task]]",
    "[task]",
    "task = 3",
    'name = "a"',
    "name = 3",
    'path = "a.csv"',
    'path = "../.."',
    'path = ""',
    'path = "s.toml"',
    'label = "y"',
    'label = "x"',
    'labels = ["x", "y"]',
    "labels = []",
    'text = ["x", "x"]',
    'features = ["x"]',
    'kind = "binary"',
    'kind = "regression"',
    'kind = "kind"',
    'split = "fold"',
    "missing = [1, 'a']",
    'class_weight = "balanced"',
    "class_weight = { 1 = 2.0 }",
    'delimiter = ""',
    'encoding = "utf-7"',
    'encoding = "x"',
    "header = false",
    "unknown = 1",
    "x = [[[[",
    "\x00",
    "capacities = [1, 'b']",
    "seed = 99999999999999999999999",
    'group = "y"',
    'duplicates = "drop"',
    'metric = "r2"',
    'metric = "acc"',
    'splits = "time"',
    'time = "x"',
    'weight = "x"',
    'id = "y"',
    "quote = true",
    'name = " "',
)


def random_bytes(rng: np.random.Generator) -> bytes:
    body = rng.integers(0, 256, rng.integers(0, 200), dtype=np.uint8).tobytes()
    return (
        rng.choice([b"", b"PK\x03\x04", b"PAR1", b"\x1f\x8b\x08", b"\xff\xfe", b"\xef\xbb\xbf", b"x,y\n1,0\n"]) + body
    )


def random_table(rng: np.random.Generator) -> bytes:
    width, rows = rng.integers(1, 6), rng.integers(0, 12)
    delimiter = rng.choice([",", "\t", ";", "|"])
    pool = rng.choice(CELLS, rng.integers(1, 5))
    head = rng.choice(HEADS, width)
    if rng.random() < 0.7:
        head[-1] = rng.choice(["y", "label"])
    lines = [head, *(rng.choice(pool, width + (rng.random() < 0.03)) for _ in range(rows))]
    text = rng.choice(["\n", "\r\n", "\r"], p=[0.8, 0.15, 0.05]).join(delimiter.join(line) for line in lines)
    return text.encode(rng.choice(["utf-8", "utf-16", "utf-8-sig", "latin-1"], p=[0.8, 0.05, 0.1, 0.05]), "replace")


def random_bundle(rng: np.random.Generator) -> bytes:
    names = (
        "X",
        "Y",
        "y",
        "names",
        "split",
        "task",
        "group",
        "X_a",
        "y_a",
        "label_names",
        "target_names",
        "ids",
        "weight",
        "images",
    )
    rows = int(rng.integers(2, 7))
    arrays = {}
    for name in rng.choice(names, rng.integers(1, 6), replace=False):
        shape = tuple(rng.integers(0, 6, rng.integers(0, 4)))
        if rng.random() < 0.8:  # the same rows in all arrays, so that some bundles load
            shape = (rows, *rng.integers(1, 4, 1)) if name in ("X", "X_a", "Y") else (rows,)
        values = rng.choice([0.0, 1.0, 2.5, np.nan, np.inf, -1.0], shape, p=[0.3, 0.3, 0.2, 0.1, 0.01, 0.09])
        kinds = ["U3", "S2", "?", "c8", "f2", "M8[s]"] if np.isfinite(values).all() and rng.random() < 0.4 else ["f8"]
        arrays[name] = values.astype(rng.choice(kinds))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return damaged(buffer.getvalue(), rng)


def random_npz(rng: np.random.Generator) -> bytes:
    """A sound bundle that loads often, then sometimes damaged."""
    rows = int(rng.integers(2, 9))
    buffer = io.BytesIO()
    np.savez(buffer, X=rng.standard_normal((rows, 2)), Y=rng.integers(0, 3, (rows, int(rng.integers(1, 3)))))
    return damaged(buffer.getvalue(), rng)


def random_parquet(rng: np.random.Generator) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(rng.integers(0, 8))
    kinds = [
        rng.standard_normal(rows),
        rng.integers(0, 2, rows),
        rng.choice(CELLS[:20], rows).astype(object),
        [None] * rows,
        [[1.0, 2.0]] * rows,
        [b"\xff"] * rows,
        rng.integers(0, 9, rows).astype("M8[s]"),
        [{"a": 1}] * rows,
    ]
    columns = {name: kinds[rng.integers(len(kinds))] for name in ("x", "y", "text")[: rng.integers(1, 4)]}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return damaged(buffer.getvalue(), rng)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The same bytes half of the time; otherwise some are changed, or the end is cut off."""
    draw = rng.random()
    if draw < 0.5 or not data:
        return data
    if draw < 0.6:
        return data[: rng.integers(len(data))]
    changed = np.frombuffer(data, np.uint8).copy()
    changed[rng.integers(0, len(changed), rng.integers(1, 4))] = rng.integers(0, 256)
    return changed.tobytes()


def random_spec(rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        return "\n".join(rng.choice(WORDS, rng.integers(0, 14))).encode()
    entry = [WORDS[5], 'name = "a"', 'path = "a.csv"', 'label = "y"', *rng.choice(WORDS, rng.integers(0, 3))]
    return "\n".join([*rng.choice(WORDS[:4], 1), *entry] if rng.random() < 0.5 else entry).encode()


MAKERS: dict[str, tuple[Callable[[np.random.Generator], bytes], tuple[str, ...]]] = {
    "bytes": (random_bytes, SUFFIXES),
    "tables": (random_table, (".csv", ".tsv", ".csv.gz", ".tsv.gz")),
    "bundles": (random_bundle, (".npz", ".npz.gz")),
    "npz": (random_npz, (".npz",)),
    "parquet": (random_parquet, (".parquet", ".parquet.gz")),
    "specs": (random_spec, (".toml",)),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one sound table, and the working directory; nothing may appear in it."""
    (tmp_path / "a.csv").write_text("x,y,fold\n" + "".join(f"{i},{i % 2},train\n" for i in range(8)))
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def loads_or_refuses(path: Path) -> bool:
    """Whether it loads; anything but a load and an mtlens error is a bug, and so is a file that was not there."""
    before = sorted(entry.name for entry in path.parent.iterdir())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tasks = read_tasks(path)
            task_facts(tasks)
    except MtlensError as error:
        assert str(error).strip(), "an error must say something"
        assert "\n" not in str(error).strip(), str(error)
        return False
    finally:
        assert sorted(entry.name for entry in path.parent.iterdir()) == before
    assert isinstance(tasks, TaskSet)
    find_duplicates(tasks)
    return True


def throw(kind: str, cases: int, folder: Path, seed: int) -> int:
    """How many of the cases loaded."""
    make, suffixes = MAKERS[kind]
    loaded = 0
    for case in range(cases):
        rng = np.random.default_rng([seed, case, len(kind)])
        suffix = suffixes[case % len(suffixes)]
        data = make(rng)
        packs = suffix.endswith(".gz") and rng.random() < 0.9
        path = folder / f"s{suffix}"
        path.write_bytes(gzip.compress(data, 1) if packs else data)
        try:
            loaded += loads_or_refuses(path)
        except BaseException:
            print(f"kind {kind}, seed {seed}, case {case}: {data[:300]!r}")
            raise
    return loaded


@pytest.mark.parametrize("kind", MAKERS)
def test_some_of_everything(folder: Path, kind: str) -> None:
    assert throw(kind, 60, folder, seed=1) >= (kind != "bytes")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_twenty_thousand_cases(folder: Path, kind: str) -> None:
    assert throw(kind, 4000, folder, seed=2) >= (kind != "bytes")


@pytest.mark.parametrize("seed", range(3))
def test_what_loads_can_be_split_or_is_refused(folder: Path, seed: int) -> None:
    for case in range(60):
        rng = np.random.default_rng([seed, case])
        path = folder / "s.csv"
        path.write_bytes(random_table(rng))
        try:
            Splits(seed, least=0).assign(read_tasks(path))
        except MtlensError:
            continue


def test_a_zip_with_strange_members_is_refused(folder: Path) -> None:
    path = folder / "s.npz"
    for name, data in (("X.npy", b""), ("../X.npy", b"\x93NUMPY"), ("X", b"text"), ("a/", b"")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, data)
        assert not loads_or_refuses(path)
