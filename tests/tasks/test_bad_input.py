"""A user's mistakes: each has one sentence with what was found and what to do, and nothing is written."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from mtlens.errors import FileError, InputError, MtlensError, UnknownNameError
from mtlens.tasks import Task, TaskSet, find_duplicates, read_tasks


def zipped(content: bytes) -> bytes:
    """The same bytes whenever it is called: they name tests, whose names may not differ between processes."""
    return gzip.compress(content, mtime=0)


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "kind", "said"),
    [
        ("a.csv", "", FileError, "is empty"),
        ("a.csv", "\n\n\n", FileError, "only empty lines"),
        ("a.csv", "x,y\n", InputError, r"header \(x, y\) and no rows"),
        ("a.csv", "x,y", InputError, r"header \(x, y\) and no rows"),
        ("a.csv", "x,y\n1,0\n2,1\n".encode("utf-16-le"), FileError, "zero bytes, so it is not UTF-8"),
        ("a.csv", "x,y\n" + f"1,{10**400}\n" * 3, InputError, "label of row 0 is infinite"),
        ("a.toml", "", FileError, r"is empty \(0 bytes\)\. It needs tasks"),
        ("a.csv", "x,y\n1,2\n3\n", InputError, r"line 3 has 1 values where the first line has 2"),
        ("a.csv", "x,y\n1,2\n3,4,5\n", InputError, r"line 3 has 3 values where the first line has 2"),
        (
            "a.csv",
            "x,y\n1,0\n2,1\nabc,0\n4,1\n",
            InputError,
            r"column 'x' is a number in 3 of 4 rows, but 'abc' in line 4",
        ),
        ("a.csv", "x,y\n1,0\ninf,1\n", InputError, r"'x' is infinite in 1 rows \(first in row 1"),
        ("a.csv", "x,y\n1,\n2,\n", InputError, "no row has a label"),
        ("a.csv", "x,y\n1,1\n2,1\n", InputError, "every label is 1"),
        ("a.csv", "x,y\n1,1\n", InputError, "every label is 1"),
        ("a.csv", "x,y\n1,1.5\n", InputError, "one labelled row of 1"),
        ("a.csv", "x,x,y\n1,2,0\n", InputError, "occur more than once: x"),
        ("a.csv", "y\n0\n1\n", InputError, "no column left for features"),
        ("a.csv", "x,z\n1,0\n", InputError, "which columns are labels"),
        ("a.csv", "x,y\n\xe9,1\n".encode("latin-1"), FileError, r"not UTF-8 \(byte 4\)"),
        ("a.csv.gz", b"not gzip at all", FileError, "not a whole .gz file"),
        ("a.csv.gz", zipped(b"x,y\n1,0\n2,1\n" * 99)[:-9], FileError, "not a whole .gz file"),
        ("a.parquet", b"PAR1garbagePAR1", FileError, "not a readable Parquet file"),
        ("a.npz", b"PK\x03\x04 nothing", FileError, "not a readable .npz file"),
        ("a.toml", "[[task]\n", InputError, "not valid TOML"),
        ("a.toml", "seed = 1\n", InputError, "names no task"),
        ("a.toml", b"\xff\xfe", FileError, "not UTF-8"),
        ("a.docx", b"x", FileError, "no format mtlens reads"),
        ("a.csv", zipped(b"x,y\n1,0\n2,1\n"), FileError, "compressed with gzip: let its name end in .gz"),
        ("a.csv.gz", zipped(zipped(b"x,y\n1,0\n2,1\n")), FileError, "compressed with gzip"),
        ("a.csv", b"PK\x03\x04\x14\0[Content_Types].xml", FileError, "a zip archive, as .npz and Excel files are"),
        ("a.tsv", b"PAR1\x15\x04", FileError, "a Parquet file: let its name end in .parquet"),
    ],
)
def test_a_broken_file_is_refused_with_its_reason(
    tmp_path: Path, name: str, content: bytes | str, kind: type, said: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(kind, match=said):
        read_tasks(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, "reviews.csv", "x,y\n1,0\n")
    with pytest.raises(FileError, match=r"no file .*reviews\.tsv\. Near it: reviews\.csv"):
        read_tasks(tmp_path / "reviews.tsv")


def test_a_folder_and_strange_paths_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a.csv"
    folder.mkdir()
    with pytest.raises(FileError, match="is a folder"):
        read_tasks(folder)
    for path in ("nowhere", "x" * 5000, "x" * 5000 + ".csv", "a\0b.csv", ""):
        with pytest.raises(MtlensError):
            read_tasks(path)


def test_an_unknown_target_is_named_with_a_guess(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "x,stars\n1,0\n2,1\n")
    with pytest.raises(
        UnknownNameError, match=r"no column named 'star' in a\.csv \(columns: x, stars\)\. Did you mean"
    ):
        read_tasks(path, targets="star")
    with pytest.raises(UnknownNameError, match=r"no task named 'sam'.*Did you mean 'same'"):
        read_tasks("example", targets="sam")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Task("", [[1.0]], [0]), "needs a name"),
        (lambda: Task("t", np.empty((0, 3)), []), "no row has a label|no rows"),
        (lambda: Task("t", [[1.0], [np.inf]], [0, 1]), r"1 rows hold infinity \(first at row 1\)"),
        (lambda: Task("t", [[1.0], [2.0]], [0, np.inf]), "label of row 1 is infinite"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1, 1]), "X has 2 rows, but y has shape"),
        (lambda: Task("t", [[1.0], [2.0, 3.0]], [0, 1]), "ragged"),
        (lambda: Task("t", [[1.0], [2.0]], ["a", "b"], kind="regression"), "regression needs numbers"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], metric="roc"), "no metric named 'roc'"),
        (lambda: Task("t", [[1.0], [2.0]], [0.5, 1.5], metric="roc_auc"), "scores binary"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], weight=[-1, 2]), "weight of row 0 is -1; weights must be finite"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], weight=["a", "b"]), "sample weights must be numbers"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], class_weight={"2": 1.0}), r"no class named '2'.*\(classes: 0, 1\)"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], class_weight={"1": -1.0}), "weight of class 1 is -1"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], class_weight={"1": np.nan}), "weight of class 1 is nan"),
        (lambda: Task("t", [[1.0], [2.0]], [10**400, 1]), "label of row 0 is infinite"),
        (lambda: Task("t", [[10**400], [2]], [0, 1]), "too large for a float"),
        (lambda: Task("t", {"a": [10**400, 2]}, [0, 1]), "column 'a' holds a whole number too large"),
        (lambda: Task("t", [[1.0], [2.0]], [0.5, 1.5], class_weight="balanced"), "class weights need classes"),
        (lambda: Task("t", [[1.0], [2.0]], [0, 1], split=["train", "dev"]), "split holds"),
        (lambda: Task("t", {"a": [1j, 2j]}, [0, 1]), "complex"),
        (lambda: Task("t", object(), [0, 1]), "X is a object"),
        (lambda: TaskSet([]), "at least one task"),
        (lambda: TaskSet([np.eye(2)]), "a TaskSet holds Tasks, found array"),  # type: ignore[list-item]
        (lambda: TaskSet([Task("t", [[1.0], [2.0]], [0, 1])] * 2), "two tasks are named 't'"),
        (lambda: read_tasks({"words": np.array(["a"])}), "no array of inputs"),
        (lambda: read_tasks({"X": np.eye(3), "Y": np.eye(4)}), "one row each"),
        (lambda: read_tasks({"X": np.eye(3), "Y": np.eye(3), "names": ["a"]}), "names holds 1 names|Y has 3 columns"),
        (lambda: read_tasks("example", kind="binary"), "says itself"),
        (lambda: read_tasks("exmple"), r"no example of that name .* Did you mean 'example'\?"),
        (lambda: read_tasks(np.eye(3)), r"was given a ndarray.*from_arrays\(X, Y\) takes arrays"),
        (lambda: read_tasks(None), "was given a NoneType. Give a path"),
        (lambda: read_tasks({}), "the dict of arrays has no array of inputs"),
        (lambda: read_tasks({"X": np.eye(4), "y": [0, 1, 0, 1]}, kind={"z": "binary"}), "no target named 'z'"),
        (lambda: Task("t", np.eye(4), np.arange(4) * 1j), "labels are complex"),
        (lambda: Task("t", np.eye(4), [b"\xff", b"a", b"a", b"b"]), "bytes that are not UTF-8"),
        (lambda: Task("t", np.eye(4), [0, 1, 0, 1], split="train"), r"split has shape \(\)"),
        (lambda: Task("t", np.eye(4), [0, 1, 0, 1], metric=["r2"]), "no metric named"),
        (lambda: Task("t", np.eye(2), [0, 1], feature_names=["a", "a"]), "feature names occur more than once: a"),
        (lambda: Task("t", np.eye(2), [0, 1], class_weight={0: 0, 1: 0}), "weights of its labelled rows are all zero"),
        (lambda: Task("t", np.eye(3), [0, 1, 0], weight=[1, 1, np.nan]), "the sample weight of row 2 is nan"),
        (lambda: Task("t", np.eye(3), [0, 1, None], weight=[0, 0, 5]), "weights of its labelled rows are all zero"),
        (
            lambda: Task("t", np.eye(4), [0, 1, 0, 1]).take([4]),
            r"task 't' has 4 rows, but the rows asked for are \[4\]",
        ),
        (lambda: Task("t", np.eye(4), [0, 1, 0, 1]).take([True, False]), "or a mask with one entry a row"),
        (lambda: Task("t", np.eye(4), [0, 1, 0, 1]).take([0.5, 1.5]), "Give whole numbers below 4"),
        (lambda: TaskSet(Task("t", np.eye(2), [0, 1])), "takes a list of Tasks"),  # type: ignore[arg-type]
        (lambda: TaskSet(None), "takes a list of Tasks, found None"),  # type: ignore[arg-type]
        (lambda: find_duplicates([1]), "a TaskSet holds Tasks, found 1"),  # type: ignore[list-item]
    ],
)
def test_a_mistake_in_the_library_is_refused_with_its_reason(build: Callable[[], object], said: str) -> None:
    with pytest.raises(MtlensError, match=said):
        build()


def npz_with(header: bytes, data: bytes, path: Path, *, name: str = "X.npy") -> Path:
    """An .npz whose only array has this header, true or not."""
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, raw)
    return path


@pytest.mark.parametrize("shape", ["(10**12, 10**6)", "(1000000000000, 1000000)", "(-1, 4)", "(2, 3)", "(0,)"])
def test_a_size_that_the_file_does_not_hold_is_refused(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    with pytest.raises(FileError, match=r"declares shape|not a readable"):
        read_tasks(npz_with(header, b"\0" * 8, tmp_path / "a.npz"))


class _Exploding:
    """An object that leaves a trace when something unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_a_pickle_inside_an_npz_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", X=np.eye(2), Y=np.array([_Exploding(), None], dtype=object))
    with pytest.raises(FileError, match="pickled objects, which mtlens never loads"):
        read_tasks("a.npz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def test_a_bomb_stops_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mtlens.tasks.files as files
    import mtlens.tasks.npz as npz

    monkeypatch.setattr(files, "_FEWEST_UNPACKED", 1 << 16)
    monkeypatch.setattr(npz, "_FEWEST_UNPACKED", 1 << 16)
    packed = written(tmp_path, "a.csv.gz", gzip.compress(b"x,y\n" + b"0,1\n" * 500_000))
    with pytest.raises(FileError, match="unpacks to more than"):
        read_tasks(packed)
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 1000)))
    with pytest.raises(FileError, match="declares 7 MiB unpacked"):
        read_tasks(tmp_path / "a.npz")


def test_a_parquet_of_equal_values_stops_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import mtlens.tasks.files as files

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(2_000_000) // 1_000_000, "y": np.arange(2_000_000) // 1_000_000}), path)
    assert path.stat().st_size < 100_000  # and 32 MB as numbers
    monkeypatch.setattr(files, "_FEWEST_UNPACKED", 1 << 24)
    with pytest.raises(FileError, match=r"unpacks to more than 16 MiB, 100 times its size.*use_dictionary=False"):
        read_tasks(path)
    monkeypatch.setattr(files, "_FEWEST_UNPACKED", 1 << 26)
    assert read_tasks(path)[0].num_rows == 2_000_000


def test_a_long_header_of_an_array_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"1," * 20_000 + b")}\n"
    with pytest.raises(FileError, match=r"not a readable \.npz"):
        read_tasks(npz_with(header, b"", tmp_path / "a.npz"))


def test_wrong_widths_across_tasks_are_refused(tmp_path: Path) -> None:
    for name, width in (("a", 3), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", X=np.eye(width), y=np.arange(width) % 2)
    spec = written(tmp_path, "s.toml", "".join(f'[[task]]\nname="{n}"\npath="{n}.npz"\n' for n in "ab"))
    with pytest.raises(InputError, match="task 'a' has 3 numbers a row, task 'b' has 4 numbers a row"):
        read_tasks(spec)
    both = {
        f"{what}_{n}": value for n, w in (("a", 3), ("b", 4)) for what, value in (("X", np.eye(w)), ("y", range(w)))
    }
    np.savez(tmp_path / "both.npz", **both)
    with pytest.raises(InputError, match="task 'a' has 3 numbers a row, task 'b' has 4 numbers a row"):
        read_tasks(tmp_path / "both.npz")


def test_a_parquet_column_of_no_use_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.0, 2.0], "tags": [["a"], ["b"]], "y": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: column 'tags' holds list.*neither a number nor a text"):
        read_tasks(tmp_path / "a.parquet")


def test_names_are_just_names(tmp_path: Path) -> None:
    names = ["../../etc/passwd", "<script>alert('x')</script>", 'say "hi"', "😀\t", "a/b\\c", "select * from x;--"]
    Y = np.arange(24.0).reshape(4, 6) * 1.5
    tasks = read_tasks({"X": np.eye(4), "Y": Y, "names": names})
    assert tasks.names == tuple(names)
    buffer = io.BytesIO()
    np.savez(buffer, X=np.eye(4), Y=Y, names=np.array(names))
    assert read_tasks(written(tmp_path, "a.npz", buffer.getvalue())).names == tuple(names)


def test_the_format_constants_agree_with_numpy() -> None:
    assert npy.MAGIC_PREFIX == b"\x93NUMPY"
