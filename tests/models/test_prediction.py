"""Predictions of files equal those in memory, to the bit, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlens import Task, fit
from mtlens.errors import FileError, InputError, UnknownNameError
from mtlens.models.model import BLOCK, Model
from mtlens.models.prediction import predict_file

ROWS = 2 * BLOCK + 77


@pytest.fixture(scope="module")
def long() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return {
        "size": np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(size=ROWS)),
        "city": np.array(["Rome", "Oslo", "New York", None], dtype=object)[rng.integers(0, 4, ROWS)],
        "more": rng.normal(size=ROWS),
        "age": rng.normal(size=ROWS),
        "ID": np.array([f"r{i:05d}" for i in range(ROWS)], dtype=object),
    }


def write_csv(path: Path, data: dict[str, Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(data)
        columns = [["" if v is None or v != v else v for v in column.tolist()] for column in data.values()]
        writer.writerows(zip(*columns, strict=True))
    return path


def test_a_file_predicts_as_memory_does_to_the_bit(model: Model, long: dict[str, Any], tmp_path: Path) -> None:
    path = write_csv(tmp_path / "long.csv", long)
    done = predict_file(model, path, tmp_path / "out.csv", level=0.5)
    assert done.rows == ROWS and done.notes == ("columns that the model does not use were ignored: 'more'",)
    expected = model.table(long, level=0.5)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    assert tuple(head) == done.columns == ("ID", *expected)
    found = dict(zip(head, zip(*rows, strict=True), strict=True))
    assert list(found["ID"]) == long["ID"].tolist()
    for name, column in expected.items():
        cells = [float(c) for c in found[name]] if column.dtype.kind == "f" else list(found[name])
        assert cells == column.tolist()
    values = model.predict(long)
    assert np.array_equal(np.array(found["buys_p_yes"], float), values["buys"])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_formats_agree(model: Model, long: dict[str, Any], tmp_path: Path, form: str) -> None:
    import pyarrow.parquet as pq

    short = {name: column[:50] for name, column in long.items()}
    path = write_csv(tmp_path / "d.csv", short)
    out = tmp_path / f"out.{form}"
    predict_file(model, path, out, tasks=["half", "grade"])
    expected = model.table(short, ["half", "grade"])
    if form == "parquet":
        found = pq.read_table(out).to_pylist()
    else:
        found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["ID"] for row in found] == short["ID"].tolist()
    for name, column in expected.items():
        assert [row[name] for row in found] == column.tolist()


def test_every_input_format(model: Model, long: dict[str, Any], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    short = {name: column[:20] for name, column in long.items()}
    pq.write_table(
        pa.table({n: pa.array(c.tolist(), from_pandas=True) for n, c in short.items()}), tmp_path / "d.parquet"
    )
    objects = [dict(zip(short, row, strict=True)) for row in zip(*[c.tolist() for c in short.values()], strict=True)]
    lines = [json.dumps({k: None if v != v else v for k, v in entry.items()}) for entry in objects]
    (tmp_path / "d.jsonl").write_text("\n".join(lines), "utf-8")
    write_csv(tmp_path / "d.csv", short)
    outputs = []
    for suffix in ("csv", "parquet", "jsonl"):
        predict_file(model, tmp_path / f"d.{suffix}", tmp_path / "out.csv")
        outputs.append((tmp_path / "out.csv").read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]


def test_ids(model: Model, tmp_path: Path) -> None:
    data = {"age": np.zeros(2), "size": np.zeros(2), "city": np.array(["Rome"] * 2, object)}
    plain = write_csv(tmp_path / "d.csv", data)
    assert predict_file(model, plain, tmp_path / "o.csv", tasks=["buys"]).columns == ("row", "buys", "buys_p_yes")
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("0,")
    named = write_csv(tmp_path / "n.csv", {"buys": np.array(["007", "x,y"], object), **data})
    done = predict_file(model, named, tmp_path / "o.csv", tasks=["buys"], ids="buys")
    assert done.columns == ("buys_2", "buys", "buys_p_yes")
    assert (tmp_path / "o.csv").read_text().splitlines()[1:][0].startswith("007,")
    with pytest.raises(UnknownNameError, match=r"no column named 'nr' in d\.csv"):
        predict_file(model, plain, tmp_path / "p.csv", ids="nr")


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        (["patient_id"], "patient_id"),
        (["CustomerId"], "CustomerId"),
        (["sample ID", "paid"], "sample ID"),
        (["a_id", "b_id"], "row"),
        (["a_id", "id"], "id"),
        (["grid", "paid"], "row"),
    ],
)
def test_rows_are_named_by_the_only_column_called_an_id(
    model: Model, tmp_path: Path, columns: list[str], ids: str
) -> None:
    data = {"age": np.zeros(2), "size": np.zeros(2), "city": np.array(["Rome"] * 2, object)}
    named = {name: np.array(["007", "x"], object) for name in columns}
    done = predict_file(model, write_csv(tmp_path / "d.csv", named | data), tmp_path / "o.csv", tasks=["buys"])
    assert done.columns[0] == ids
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("0," if ids == "row" else "007,")
    ignored = [name for name in columns if name != ids]
    assert bool(done.notes) == bool(ignored) and all(name in done.notes[0] for name in ignored)


def test_strange_categories_are_said_once(model: Model, tmp_path: Path) -> None:
    data = {"age": np.zeros(3), "size": np.zeros(3), "city": np.array(["Bern", "Rome", "Ulm"], object)}
    done = predict_file(model, write_csv(tmp_path / "d.csv", data), tmp_path / "o.csv")
    assert done.notes == (
        "column 'city': 'Bern', 'Ulm' are not in the training rows; such rows belong to no known category.",
    )


def test_mistakes_leave_no_file(model: Model, tmp_path: Path) -> None:
    data = {"age": np.zeros(2), "size": np.zeros(2)}
    path = write_csv(tmp_path / "d.csv", data)
    with pytest.raises(InputError, match=r"d\.csv lacks 1 of the 3 columns .*'city'"):
        predict_file(model, path, tmp_path / "o.csv")
    with pytest.raises(InputError, match="Parquet goes to a file"):
        predict_file(model, path, format="parquet")
    with pytest.raises(UnknownNameError, match="no format named 'xlsx'"):
        predict_file(model, path, tmp_path / "o.csv", format="xlsx")  # type: ignore[arg-type]
    for ending in ("xlsx", "gz", "json"):
        with pytest.raises(InputError, match=rf"predictions are written as csv, jsonl, parquet, not as \.{ending}"):
            predict_file(model, path, tmp_path / f"o.{ending}")
    with pytest.raises(UnknownNameError, match="no task named 'x'"):
        predict_file(model, path, tmp_path / "o.csv", tasks=["x"])
    with pytest.raises(InputError, match="level=7"):
        predict_file(model, write_csv(path, data | {"city": np.array(["x", "y"], object)}), tmp_path / "o.csv", level=7)
    with pytest.raises(FileError, match="cannot be written"):
        predict_file(model, path, tmp_path / "no" / "o.csv")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv"]


def test_nothing_but_predictions_is_written_over(model: Model, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "d.csv", {"age": np.zeros(2), "size": np.zeros(2), "city": np.array(["Rome"] * 2)})
    before = path.read_bytes()
    with pytest.raises(FileError, match="is the file that is read"):
        predict_file(model, path, tmp_path / "." / "d.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="is no file"):
        predict_file(model, path, tmp_path / "folder")
    with pytest.raises(FileError, match="a model's folder"):
        predict_file(model, path, model.save(tmp_path / "model") / "p.csv")
    assert path.read_bytes() == before and len(list((tmp_path / "model").iterdir())) == 3
    for _ in range(2):  # predictions may be made again
        predict_file(model, path, tmp_path / "o.csv")


def test_a_text_column_may_be_called_anything(tmp_path: Path) -> None:
    texts = [f"{'good' if i % 2 else 'bad'} film {i % 7}" for i in range(40)]
    model = fit([Task("likes", texts, [i % 2 for i in range(40)])], family="linear")
    (tmp_path / "r.tsv").write_text("label\treview\n" + "".join(f"{i % 2}\t{t}\n" for i, t in enumerate(texts)))
    predict_file(model, tmp_path / "r.tsv", tmp_path / "o.jsonl")
    found = [json.loads(line)["likes_p_1"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert np.array_equal(found, model.predict(texts, "likes"))
