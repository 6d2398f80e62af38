"""Readers: every format gives the same tasks, columns are matched by name, and what was found is said."""

from __future__ import annotations

import gzip
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from mtlens.errors import InputError, MtlensError
from mtlens.tasks import Table, Task, TaskSet, read_tasks
from mtlens.tasks.examples import EXAMPLES, three_tasks
from mtlens.tasks.spec import TEMPLATE, read_spec, write_template


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x1": rng.standard_normal(30),
            "a": rng.integers(0, 2, 30),
            "x2": np.where(np.arange(30) % 7 == 0, np.nan, rng.standard_normal(30)),
            "b": rng.standard_normal(30),
            "id": [f"row-{i}" for i in range(30)],
        }
    )


def assert_same(left: TaskSet, right: TaskSet) -> None:
    assert left.names == right.names
    for one, two in zip(left, right, strict=True):
        assert (one.kind, one.classes, one.feature_names) == (two.kind, two.classes, two.feature_names)
        np.testing.assert_array_equal(one.X, two.X)
        np.testing.assert_array_equal(one.y, two.y)
        assert np.array_equal(one.ids, two.ids)


def write(frame: pd.DataFrame, path: Path) -> Path:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    buffer = io.BytesIO()
    if ".parquet" in path.name:
        pq.write_table(table, buffer)
    else:
        delimiter = "\t" if ".tsv" in path.name else ","
        pacsv.write_csv(table, buffer, pacsv.WriteOptions(delimiter=delimiter, quoting_style="none"))
    data = buffer.getvalue()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz", ".parquet.gz"])
def test_every_format_gives_the_tasks_of_the_frame(frame: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    tasks = read_tasks(write(frame, tmp_path / f"t{suffix}"), targets="a,b")
    assert_same(tasks, read_tasks(frame, targets=["a", "b"]))
    assert tasks.has_shared_inputs
    assert tasks["a"].feature_names == ("x1", "x2")
    assert tasks["a"].ids is not None and tasks["a"].ids[3] == "row-3"
    assert len(tasks.found) == 1 and "30 rows x 5 columns" in tasks.found[0] and "ids 'id'" in tasks.found[0]


def test_pandas_polars_and_arrow_frames_agree(frame: pd.DataFrame) -> None:
    by_pandas = read_tasks(frame, targets=["a", "b"])
    assert_same(by_pandas, read_tasks(pl.from_pandas(frame), targets=["a", "b"]))
    assert_same(by_pandas, read_tasks(pa.Table.from_pandas(frame), targets=["a", "b"]))
    assert_same(by_pandas, read_tasks(frame.convert_dtypes(), targets=["a", "b"]))


@pytest.mark.parametrize(("delimiter", "name"), [(",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_delimiter_is_found(tmp_path: Path, delimiter: str, name: str, end: str) -> None:
    path = tmp_path / "t.csv"
    rows = [["x", "z", "y"], *([str(i), str(i * 0.5), str(i % 2)] for i in range(9))]
    path.write_bytes(end.join(delimiter.join(row) for row in rows).encode())
    tasks = read_tasks(path)
    assert tasks["t"].X.shape == (9, 2)
    assert f"{name}-separated, header found" in tasks.found[0]


def test_a_file_without_a_header_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{i},{i % 2}\n" for i in range(8)))
    tasks = read_tasks(path, targets="c1")
    assert tasks["c1"].num_rows == 8 and "no header" in tasks.found[0]
    assert read_tasks(path, targets="c0", header=False)["c0"].num_rows == 8
    path.write_text("25400,30400\n1,0\n2,1\n3,1\n")  # names that are numbers are a header when one is asked for
    assert read_tasks(path, targets="30400")["30400"].y.tolist() == [0, 1, 1]


def test_quotes_newlines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbftext,label\n"a, ""b""\nc",1\n"d",0\nplain words here,1\n')
    task = read_tasks(path)["t"]
    assert isinstance(task.X, Table)
    assert task.X["text"].tolist() == ['a, "b"\nc', "d", "plain words here"]


def test_decimal_commas_are_numbers_where_commas_do_not_separate(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b;y\n1,5;7;0,25\n-2,25;NA;1\n,5;1e3;-3,5\n")
    tasks = read_tasks(path)
    assert tasks["t"].kind == "regression" and tasks["t"].y.tolist() == [0.25, 1.0, -3.5]
    assert np.array_equal(tasks["t"].X, [[1.5, 7], [-2.25, np.nan], [0.5, 1000]], equal_nan=True)
    assert "semicolon-separated, header found, decimal commas" in tasks.found[0]
    path.write_text('a,x,y\n"1,500",1,0\n"2,000",2,1\n1,3,1\n')  # thousands, or not: nobody knows
    with pytest.raises(InputError, match="column 'a' holds numbers with a comma, such as '1,500'"):
        read_tasks(path)
    assert read_tasks(path, categories=["a"])["t"].X.kinds == {"a": "category", "x": "number"}


def test_what_tables_write_where_a_value_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    spelled = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL"]
    path.write_text("a,b,y\n1,2,no\n2,3,yes\n" + "".join(f"{s},4,{s}\n" for s in spelled) + "None,4,None\n")
    task = read_tasks(path)["t"]
    assert np.isnan(task.X[2:, 0]).all() and task.classes == ("None", "no", "yes")
    assert task.labelled.tolist() == [True, True, *[False] * len(spelled), True]


def test_tab_separated_texts_are_read_without_quoting(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    texts = ['he said "no', "", "NA", "1984", 'a\u2028b "', "x\x0by"]
    path.write_bytes(("label\ttext\n" + "".join(f"{i % 2}\t{t}\n" for i, t in enumerate(texts))).encode())
    task = read_tasks(path)["t"]
    assert isinstance(task.X, Table) and task.X.kinds == {"text": "text"}
    assert task.X["text"].tolist() == texts
    path.write_bytes(b"label\ttext\n1\ta\rb\n0\tc\n")
    tasks = read_tasks(path)
    assert tasks["t"].X["text"].tolist() == ["a b", "c"] and "carriage returns" in tasks.found[1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-32"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("x,label\n1,né\n2,ja\n".encode(encoding))
    stated = {"encoding": encoding} if encoding == "latin-1" else {}
    assert read_tasks(path, **stated)["t"].classes == ("ja", "né")


def test_labels_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,split\n1,0,train\n2,1,dev\n3,-1,test_unlabelled\n4,,test_unlabelled\n5,1,train_subset\n")
    task = read_tasks(path)["t"]
    assert task.kind == "binary" and task.split is not None
    assert task.split.tolist() == ["train", "valid", "test", "test", "train"]
    assert task.labelled.tolist() == [True, True, False, False, True]
    path.write_text("x,y\n1,0\n2,1\n3,-1\n")
    assert read_tasks(path)["t"].kind == "multiclass"
    assert read_tasks(path, missing=-1)["t"].kind == "binary"
    assert read_tasks(path, missing="-1")["t"].kind == "binary"


def test_kinds_are_found_as_the_design_says() -> None:
    X = np.arange(44.0)[:, None]
    Y = {"half": X[:, 0] / 2, "many": X[:, 0] // 2, "few": X[:, 0] % 20, "two": X[:, 0] % 2 + 5}
    tasks = read_tasks({"X": X, "Y": np.stack(list(Y.values()), 1), "names": list(Y)})
    assert [task.kind for task in tasks] == ["regression", "regression", "multiclass", "binary"]
    assert tasks["two"].classes == (5, 6) and "binary (labels 5 and 6)" in tasks["two"].found


def test_categories_texts_and_dates_in_one_table() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2020-01-01", periods=40),
            "city": rng.choice(["Rome", "Oslo", None], 40),
            "words": [f"some words number {i} here" for i in range(40)],
            "flag": rng.integers(0, 2, 40).astype(bool),
            "y": rng.standard_normal(40),
        }
    )
    X = read_tasks(frame)["y"].X
    assert isinstance(X, Table)
    assert X.kinds == {"when": "number", "city": "category", "words": "text", "flag": "number"}
    assert X["when"][1] - X["when"][0] == 86_400


def test_a_column_of_codes_becomes_the_rows_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("image,age,y\n" + "".join(f"img_{i}.png,{i},{i % 2}\n" for i in range(25)))
    task = read_tasks(path)["t"]
    assert task.ids is not None and task.ids[2] == "img_2.png" and task.X.shape == (25, 1)


def spec_of(folder: Path, text: str) -> Path:
    path = folder / "s.toml"
    path.write_text(text)
    return path


def test_columns_are_matched_by_name_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x1,x2,y\n1,10,0\n2,20,1\n")
    (tmp_path / "b.csv").write_text("y,extra,x2,x1\n0.5,7,30,3\n1.5,8,40,4\n")
    entries = "".join(f'[[task]]\nname="{n}"\npath="{n}.csv"\nlabel="y"\n' for n in "ab")
    tasks = read_tasks(spec_of(tmp_path, entries))
    assert tasks["b"].X.tolist() == [[3, 30], [4, 40]] and tasks["b"].feature_names == ("x1", "x2")
    assert "left out: 'extra'" in tasks.found[-1]
    (tmp_path / "b.csv").write_text("y,x1\n0.5,3\n1.5,4\n")
    with pytest.raises(InputError, match=r"b\.csv lacks 1 of the 2 columns of a\.csv: 'x2'"):
        read_tasks(tmp_path / "s.toml")


def test_every_field_of_a_spec(tmp_path: Path) -> None:
    rows = "".join(
        f"{i};{i % 3};{'ab'[i % 2]};p{i // 4};{i};{1 + i % 2};r{i};{'dev' if i > 15 else 'train'}\n" for i in range(20)
    )
    (tmp_path / "d.csv").write_bytes(("x;code;lab;pat;t;w;key;fold\n" + rows).encode("latin-1"))
    text = """
    seed = 7
    margin = 1
    budget = "10m"
    capacities = [10, 50]
    [[task]]
    name = "reviews/<b>"
    path = "d.csv"
    label = "lab"
    features = ["x", "code"]
    categories = ["code"]
    kind = "binary"
    metric = "accuracy"
    split = "fold"
    group = "pat"
    time = "t"
    weight = "w"
    class_weight = { a = 2.0, b = 1.0 }
    id = "key"
    delimiter = ";"
    header = true
    encoding = "latin-1"
    quote = true
    """
    tasks = read_tasks(spec_of(tmp_path, text))
    task = tasks["reviews/<b>"]
    assert tasks.settings == {"seed": 7, "margin": 1.0, "budget": "10m", "capacities": [10, 50]}
    assert isinstance(task.X, Table) and task.X.kinds == {"x": "number", "code": "category"}
    assert (task.kind, task.metric, task.classes) == ("binary", "accuracy", ("a", "b"))
    assert task.weight is not None and task.weight[:2].tolist() == [2.0, 2.0]
    assert task.group is not None and task.group[4] == "p1" and task.ids is not None and task.ids[0] == "r0"
    assert task.time is not None and task.time[3] == 3 and (task.split == "valid").sum() == 4


def test_labels_of_one_file_share_their_rows(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,a,b,g\n" + "".join(f"{i},{i % 2},{i * 0.5},{i // 2}\n" for i in range(10)))
    one = read_tasks(spec_of(tmp_path, '[[task]]\npath="d.csv"\nlabels=["a","b"]\ngroup="g"\n'))
    assert one.names == ("a", "b") and one.has_shared_inputs and one["a"].feature_names == ("x",)
    entries = "".join(f'[[task]]\nname="{n}"\npath="d.csv"\nlabel="{n}"\ngroup="g"\nfeatures=["x"]\n' for n in "ab")
    assert read_tasks(spec_of(tmp_path, entries)).has_shared_inputs


def test_a_text_pair(tmp_path: Path) -> None:
    (tmp_path / "d.tsv").write_text("premise\thypothesis\tlabel\na b\tc\t1\nd\te\t0\n")
    spec = spec_of(tmp_path, '[[task]]\nname="t"\npath="d.tsv"\nlabel="label"\ntext=["premise","hypothesis"]\n')
    X = read_tasks(spec)["t"].X
    assert isinstance(X, Table) and X.kinds == {"text_a": "text", "text_b": "text"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[task]]\nname='a'\nlabel='y'\n", "task 'a' has no 'path'"),
        ("[[task]]\npath='d.csv'\nlable='y'\n", "no key named 'lable' in .*task 1.*Did you mean 'label'"),
        ("sead = 1\n[[task]]\npath='d.csv'\n", "no key named 'sead'.*Did you mean 'seed'"),
        ("[[task]]\npath='d.csv'\nname=' '\n", "name is empty"),
        ("[[task]]\npath='d.csv'\nkind='ordinal'\n", "kind must be 'regression', 'binary' or 'multiclass'"),
        ("[[task]]\npath='d.csv'\nlabel='y'\nlabels=['y']\n", "has both label and labels"),
        ("seed = -1\n[[task]]\npath='d.csv'\n", "seed must be greater than or equal to 0"),
        ("[[task]]\npath='d.csv'\nname='a'\n[[task]]\npath='d.csv'\nname='a'\n", "two tasks are named"),
        ("[[task]]\npath='e.csv'\nlabel='y'\n", "there is no file"),
        ("[task]\npath='d.csv'\n", r"task must be written as \[\[task\]\]"),
        ("task = [3]\n", r"task 1 must be written as \[\[task\]\]"),
        (
            "[[task]]\npath='d.csv'\nlabel='y'\nkind={z='binary'}\n",
            r"no target named 'z' in d\.csv, in kind \(targets: y",
        ),
        ("[[task]]\npath='d.csv'\nlabel='z'\n", r"no column named 'z' in d\.csv"),
    ],
)
def test_a_mistake_in_a_spec_is_said_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "d.csv").write_text("x,y\n1,0\n2,1\n")
    with pytest.raises(MtlensError, match=said) as caught:
        read_tasks(spec_of(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_the_template_is_a_spec_that_loads_once_its_files_are_there(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.csv").write_text("x,label\n1,0\n2,1\n3,0\n")
    write_template(tmp_path / "s.toml")
    assert read_tasks(tmp_path / "s.toml").names == ("first", "second")
    commented = [line.removeprefix("# ").split("#")[0] for line in TEMPLATE.splitlines() if " = " in line]
    fields = {line.split(" = ")[0].strip() for line in commented}
    from mtlens.tasks.spec import Entry

    assert set(Entry.model_fields) - {"labels", "header", "quote"} <= fields, "the template shows every field of a task"
    assert read_spec(tmp_path / "s.toml").seed == 0


def test_arrays_in_every_layout() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), np.arange(12) % 2
    own = read_tasks({"X_a": X, "y_a": y, "X_b": X[:5], "y_b": X[:5, 0], "split_a": ["train"] * 6 + ["dev"] * 6})
    assert own.names == ("a", "b") and not own.has_shared_inputs and own["a"].split is not None
    stacked = read_tasks({"X": X, "y": X[:, 0], "task": np.repeat([3, 1], 6)})
    assert stacked.names == ("task_1", "task_3") and stacked["task_3"].X.tolist() == X[:6].tolist()
    images = read_tasks({"images": np.zeros((12, 4, 4), np.uint8), "labels": y, "names": [f"i{i}" for i in range(12)]})
    assert images["labels"].X.dtype == np.uint8 and images["labels"].ids is not None
    targets = read_tasks({"X": X, "Y": np.stack([y, y + 1], 1), "target_names": ["p", "q"]})
    assert [task.kind for task in targets] == ["regression", "regression"]


def test_labels_of_a_data_frame_keep_their_names() -> None:
    labels = pd.DataFrame({"stars": [1.5, 2.5, 3.5], "sold": [0, 1, 0]})
    assert TaskSet.from_arrays(np.eye(3), labels).names == ("stars", "sold")
    assert TaskSet.from_arrays(np.eye(3), labels, names=["a", "b"]).names == ("a", "b")


def test_missing_values_of_a_data_frame_and_infinity(frame: pd.DataFrame) -> None:
    frame.loc[2, "x1"] = np.inf
    with pytest.raises(InputError, match="'x1' is infinite in 1 rows"):
        read_tasks(frame, targets=["a"])


def test_the_example_has_the_covariances_and_the_noise_that_it_says() -> None:
    tasks = three_tasks(3, target_rows=4000, source_rows=4000, noise=1.0)
    second = {task.name: task.X.T @ task.X / 4000 for task in tasks}
    distance = {n: np.linalg.norm(second[n] - second["target"]) / np.linalg.norm(second["target"]) for n in second}
    assert distance["same"] < 0.3 < 1.2 < distance["different"]
    theta = {task.name: np.linalg.lstsq(task.X, task.y, rcond=None)[0] for task in tasks}
    explained = {task.name: (task.X @ theta[task.name]).var() / task.y.var() for task in tasks}
    assert all(abs(share - 0.5) < 0.06 for share in explained.values())
    clean = three_tasks(3, target_rows=400, source_rows=400, noise=0.0)
    fits = [np.linalg.lstsq(task.X, task.y, rcond=None)[0] for task in clean]
    cosine = fits[0] @ fits[1] / np.linalg.norm(fits[0]) / np.linalg.norm(fits[1])
    assert abs(cosine - 0.96) < 1e-6
    assert np.allclose(np.linalg.svd(clean[0].X)[1][[0, 99]] ** 0, 1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_the_same_every_time(name: str) -> None:
    one, two = read_tasks(name), read_tasks(name)
    assert all(np.array_equal(a.y, b.y) and np.array_equal(a.X, b.X) for a, b in zip(one, two, strict=True))


def test_numbers_are_read_into_one_array_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y,b\n" + "".join(f"{i},{i % 2},{-i}\n" for i in range(50)))
    X = read_tasks(path)["t"].X
    assert isinstance(X, np.ndarray) and X.base is not None and X.strides == (24, 8)
    assert X[7].tolist() == [7.0, -7.0]


def test_byte_strings_of_arrays_are_texts() -> None:
    X, y = np.eye(4), np.array([b"no", b"yes", b"no", "gr\u00fcn".encode()])
    arrays = {"X": X, "Y": np.stack([y, y], axis=1), "names": np.array([b"a", b"b"])}
    tasks = read_tasks(arrays | {"split": np.array([b"train", b"train", b"dev", b"test"])})
    assert tasks.names == ("a", "b") and tasks["a"].classes == ("gr\u00fcn", "no", "yes")
    assert tasks["a"].split is not None and tasks["a"].split.tolist() == ["train", "train", "valid", "test"]
    assert read_tasks({"X": np.array([b"one text", b"another"]), "y": [0, 1]})[0].X["text"].tolist()[0] == "one text"


@pytest.mark.parametrize(
    "given",
    [
        pd.array([0, 1, None, 1], dtype="Int64"),
        pd.array([False, True, None, True], dtype="boolean"),
        pd.Series([0, 1, None, 1], dtype="Int8"),
        pl.Series([0, 1, None, 1]),
        [Decimal(0), Decimal(1), None, Decimal(1)],
        np.ma.MaskedArray([0, 1, 7, 1], mask=[False, False, True, False]),
    ],
)
def test_labels_of_every_library_keep_their_gaps(given: Any) -> None:
    task = Task("t", np.eye(4), given)
    np.testing.assert_array_equal(task.y, [0, 1, np.nan, 1])
    assert task.classes == (0, 1)
    assert read_tasks({"X": np.eye(4), "y": given})[0].classes == (0, 1)


def test_dates_as_labels_are_seconds_in_every_way_in() -> None:
    days = np.array(["1970-01-02", "NaT", "1970-01-01", "1970-01-03"], dtype="M8[D]")
    frame = read_tasks(pd.DataFrame({"x": range(4), "y": days}), targets="y", kind="regression")[0]
    array = Task("t", np.eye(4), days, kind="regression")
    np.testing.assert_array_equal(array.y, [86400, np.nan, 0, 172800])
    np.testing.assert_array_equal(frame.y, array.y)


def test_a_long_double_is_a_float_here() -> None:
    assert Task("t", np.eye(4, dtype=np.longdouble), [0, 1, 0, 1]).X.dtype == np.float64
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(InputError, match="4 rows hold infinity"):
            Task("t", np.full((4, 1), np.longdouble("1e400")), [0, 1, 0, 1])


def test_one_name_needs_no_list() -> None:
    tasks = TaskSet.from_arrays(np.eye(4), [[0, 1.5], [1, 2.5], [0, 0.5], [1, 0.0]], names=["a", "b"])
    assert tasks.subset("b").names == ("b",)
    with pytest.raises(MtlensError, match="no task named 'ab'"):
        tasks.subset("ab")
    assert TaskSet.from_arrays(np.eye(2), [0, 1], names="only").names == ("only",)


def test_a_column_is_a_category_everywhere_when_it_is_one_in_some_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,code,label\n" + "".join(f"{i},{i % 3:03d},{i % 2}\n" for i in range(12)))
    (tmp_path / "b.csv").write_text(
        "label,code,x\n" + "".join(f"{i % 2},{'00' if i % 2 else 'A0'}1,{i}\n" for i in range(12))
    )
    (tmp_path / "c.csv").write_text("label,code,x\n" + "".join(f"{i % 2},,{i}\n" for i in range(12)))
    entries = "".join(f"[[task]]\nname='{n}'\npath='{n}.csv'\nlabel='label'\n" for n in "abc")
    tasks = read_tasks(spec_of(tmp_path, entries))
    assert [sorted(t.X.kinds.items()) for t in tasks] == [[("code", "category"), ("x", "number")]] * 3
    assert tasks["a"].X["code"].tolist()[:3] == ["000", "001", "002"]  # as written, so that 001 is one category
    assert set(tasks["b"].X["code"]) == {"001", "A01"} and set(tasks["c"].X["code"]) == {None}
    assert "categories, as in another file: 'code'" in tasks.found[0]


def test_categories_of_numbers_keep_their_digits_and_gaps(tmp_path: Path) -> None:
    codes = pa.array([1234567.0, 1234568.0, None, 0.1] * 3)
    pq.write_table(pa.table({"code": codes, "label": [0, 1] * 6}), tmp_path / "a.parquet")
    column = read_tasks(tmp_path / "a.parquet", categories=["code"])[0].X["code"].tolist()
    assert column[:4] == ["1234567", "1234568", None, "0.1"]


def test_a_group_that_is_called_label_is_no_label(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,label\n1,0\n2,1\n3,0\n")
    with pytest.raises(InputError, match="which columns are labels"):
        read_tasks(tmp_path / "a.csv", group="label")
