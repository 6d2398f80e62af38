"""What fit builds, against independent answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import mtlens
from mtlens import System, Task, TaskSet, fit, read_tasks
from mtlens.errors import DataWarning, FileError, InputError, UnknownNameError
from mtlens.models.members import joined
from mtlens.models.model import Model
from mtlens.models.prediction import predict_file
from mtlens.models.system import Grid, TaskPlan
from mtlens.theory.transfer import RIDGES

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 4))


def linear_task(name: str = "y", noise: float = 0.3, rows: int = 80) -> Task:
    return Task(name, X[:rows], X[:rows] @ [1.0, -2.0, 0.0, 0.5] + 3 + noise * RNG.normal(size=rows))


def test_a_linear_model_is_ridge_on_all_rows() -> None:
    task = linear_task()
    model = fit([task], advice=System.alone(["y"], grid=Grid(ridges=[RIDGES[3]])))
    Z = (X - X.mean(0)) / X.std(0)
    (settings,) = [model.tasks["y"].alone.model.settings]  # type: ignore[attr-defined]
    twin = Ridge(alpha=settings["ridge"]).fit(Z, task.y)
    np.testing.assert_allclose(model.predict(X, "y"), np.clip(twin.predict(Z), task.y.min(), task.y.max()), atol=1e-8)


@pytest.mark.medium
def test_a_prediction_is_alone_plus_weight_times_the_difference(tasks: TaskSet, model: Model) -> None:
    for name, task in model.tasks.items():
        plan = model.system.plan_of(name)
        alone = fit(tasks, advice=_only(model.system, name, 0.0), workers=1).predict(tasks[name], name)
        joint = fit(tasks, advice=_only(model.system, name, 1.0), workers=1).predict(tasks[name], name)
        expected = joined(alone, joint, plan.weight, task.kind, task.low, task.high)
        if task.kind == "regression":  # classes are normalised after clipping, so only unclipped rows are a line
            np.testing.assert_allclose(model.predict(tasks[name], name), expected, atol=1e-9)
        else:
            assert np.abs(model.predict(tasks[name], name) - expected).max() < 0.05


def _only(system: System, name: str, weight: float) -> System:
    plans = [p.model_copy(update={"weight": weight}) if p.name == name else p for p in system.tasks]
    return system.model_copy(update={"tasks": plans})


def test_every_kind_of_task_has_predictions_in_its_range(tasks: TaskSet, model: Model) -> None:
    found = model.predict(tasks[0])
    for name, task in model.tasks.items():
        assert np.isfinite(found[name]).all()
        if task.kind == "multiclass":
            np.testing.assert_allclose(found[name].sum(axis=1), 1.0)
        else:
            assert found[name].min() >= task.low and found[name].max() <= task.high
        assert task.kind == "regression" or (found[name].min() > 0 and found[name].max() < 1)
    assert model.tasks["grade"].facts["deployed"] > 0.6
    assert set(model.tasks["grade"].decided(found["grade"])) <= {"low", "mid", "high"}
    assert np.array_equal(model.predict(tasks[0], "half"), found["half"])


def test_the_better_family_is_chosen_on_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, size=(300, 2))
    bent = Task("bent", inputs, np.abs(inputs[:, 0]) * 4 + 0.1 * rng.normal(size=300))
    straight = Task("straight", inputs, inputs @ [1.0, 2.0] + 0.5 * rng.normal(size=300))
    model = fit([bent, straight], workers=1)
    assert model.system.plan_of("bent").family == "trunk"
    assert model.tasks["bent"].facts["alone"] > 0.5
    assert model.tasks["straight"].facts["alone"] > 0.7
    assert any("no study was given" in line for line in model.notes)


def test_intervals_hold_their_share_of_new_labels() -> None:
    """Coverage over many new rows, averaged over draws: a binomial interval around the level."""
    hits, level = [], 0.8
    for seed in range(8):
        rng = np.random.default_rng(seed)
        inputs, new = rng.normal(size=(150, 3)), rng.normal(size=(2000, 3))
        task = Task("y", inputs, inputs[:, 0] + rng.normal(size=150))
        bounds = fit([task], family="linear").intervals(new, "y", level=level)
        label = new[:, 0] + rng.normal(size=2000)
        hits.append(np.mean((bounds[:, 0] <= label) & (label <= bounds[:, 1])))
    assert abs(np.mean(hits) - level) < 0.04


def test_half_width_is_the_conformal_order_statistic(model: Model) -> None:
    task = model.tasks["half"]
    assert task.errors is not None
    n = len(task.errors)
    assert task.half_width(0.5) == task.errors[int(np.ceil((n + 1) * 0.5)) - 1]
    assert task.half_width(1 - 1e-9) == np.inf
    with pytest.raises(InputError, match="between 0 and 1"):
        model.intervals(X, "half", level=1.0)
    with pytest.raises(InputError, match="probabilities"):
        model.intervals(X, "buys")


def test_the_same_call_gives_the_same_bits(tasks: TaskSet, model: Model) -> None:
    again = fit(tasks, advice=model.system, workers=1)
    for name, values in model.predict(tasks[0]).items():
        assert np.array_equal(values, again.predict(tasks[0])[name])


def test_rows_in_any_order_columns_in_any_order_extra_columns(tasks: TaskSet, model: Model) -> None:
    rng = np.random.default_rng(9)
    cities = np.array(["Rome", "Oslo", None], dtype=object)[rng.integers(0, 3, 30)]
    frame = {"age": rng.normal(size=30), "size": rng.normal(size=30), "city": cities}
    expected = model.predict(frame)
    order = np.random.default_rng(0).permutation(30)
    shuffled = {name: frame[name][order] for name in reversed(frame)} | {"other": np.arange(30.0)}
    for name, values in model.predict(shuffled).items():
        np.testing.assert_allclose(values, expected[name][order], atol=1e-12)


@pytest.mark.parametrize("form", ["pandas-like", "table", "task", "records"])
def test_forms_of_input_agree(tasks: TaskSet, model: Model, form: str) -> None:
    import pyarrow as pa

    from mtlens import Table

    task = tasks[0]
    assert isinstance(task.X, Table)
    columns = dict(task.X.columns)
    frame = pa.table(columns)
    given: dict[str, Any] = {"pandas-like": frame, "table": task.X, "task": task, "records": frame.to_pylist()}
    assert np.array_equal(model.predict(given[form], "buys"), model.predict(columns, "buys"))


def test_missing_columns_and_strange_values_are_refused_by_name(model: Model) -> None:
    frame = {"age": [1.0], "size": [2.0], "city": ["Rome"]}
    with pytest.raises(InputError, match=r"lacks 1 of the 3 columns .*'city'"):
        model.predict({"age": [1.0], "size": [2.0]})
    with pytest.raises(InputError, match=r"column 'size': row 0 holds 'big'"):
        model.predict(frame | {"size": ["big"]})
    with pytest.raises(InputError, match="infinity"):
        model.predict(frame | {"size": [np.inf]})
    with pytest.raises(InputError, match="takes 3 columns"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(UnknownNameError, match=r"(?s)no task named 'buy'.*Did you mean 'buys'"):
        model.predict(frame, "buy")
    with pytest.warns(DataWarning, match="'Bern' is not in the training rows"):
        assert np.isfinite(model.predict(frame | {"city": ["Bern"]}, "buys")).all()
    assert np.isfinite(model.predict(frame | {"size": [None], "age": [np.nan]}, "buys")).all()


def test_records_as_json_brings_them(model: Model) -> None:
    one = {"age": 1.0, "size": 2.0, "city": "Rome"}
    expected = model.predict({name: [value] for name, value in one.items()}, "buys")
    assert np.array_equal(model.predict(one, "buys"), expected)
    gap = model.predict([one, {"age": 1.0, "city": "Rome"}], "buys")
    unknown = model.predict({**one, "size": None}, "buys")
    np.testing.assert_allclose(gap, [*expected, *unknown], rtol=1e-12)  # a product of two rows may round otherwise
    with pytest.raises(InputError, match=r"lacks 1 of the 3 columns .*'size'"):
        model.predict([{"age": 1.0, "city": "Rome"}])
    with pytest.raises(InputError, match=r"found the text 'rows\.csv'.*mtlens predict MODEL FILE"):
        model.predict("rows.csv")


def test_dates_and_truth_written_as_texts_are_read_as_the_file_was(tmp_path: Path) -> None:
    """A CSV file's dates are numbers to the model; data frames and JSON bring the same dates as texts."""
    rng = np.random.default_rng(0)
    days = (np.datetime64("2021-01-01") + rng.integers(0, 700, 90)).astype(str)
    member = np.where(rng.random(90) < 0.5, "true", "false")
    price = [
        f"{(int(day[2:4]) - 21) * 12 + int(day[5:7]) + (m == 'true')}" for day, m in zip(days, member, strict=True)
    ]
    rows = [f"{d},{m},{k % 7 + 0.5},{p}" for k, (d, m, p) in enumerate(zip(days, member, price, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(["joined,member,size,price", *rows]))
    tasks = read_tasks(tmp_path / "rows.csv", targets="price")
    assert tasks[0].X.shape == (90, 3)
    model = fit(tasks, family="linear")
    expected = model.predict(tasks[0], "price")
    size = [k % 7 + 0.5 for k in range(90)]
    assert np.array_equal(model.predict({"joined": days, "member": member, "size": size}, "price"), expected)
    records = [
        {"joined": f"{day} 00:00:00+00:00", "member": m == "true", "size": str(s)}
        for day, m, s in zip(days, member, size, strict=True)
    ]
    assert np.array_equal(model.predict(records, "price"), expected)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    predict_file(model, tmp_path / "rows.jsonl", tmp_path / "out.jsonl")
    told = [json.loads(line)["price"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert told == expected.tolist()
    days[5] = "soon"
    for dates, row in ((days, "5 holds 'soon'"), (["7", *days[1:]], f"1 holds '{days[1]}'")):
        with pytest.raises(InputError, match=f"column 'joined': row {row}, but the model was trained on numbers"):
            model.predict({"joined": dates, "member": member, "size": size}, "price")


def test_arrays_are_matched_by_place_and_images_go_to_networks() -> None:
    task = linear_task()
    model = fit([task], family="linear")
    assert model.predict(X[:3], "y").shape == (3,)
    with pytest.raises(InputError, match="takes 4 columns"):
        model.predict(X[:, :3], "y")
    with pytest.raises(InputError, match="lacks"):
        model.predict({"a": [1.0]}, "y")
    assert model.predict(np.zeros((0, 4)), "y").shape == (0,)


@pytest.mark.medium
def test_texts_alone_and_through_an_embedding() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["good", "fine", "bad", "poor", "film", "book"])
    texts = [" ".join(rng.choice(words, 6)) for _ in range(90)]
    y = np.array([("good" in t) * 1.0 for t in texts])
    task = Task("likes", texts, y)
    linear = fit([task], family="linear")
    assert linear.tasks["likes"].facts["alone"] > 0.9
    assert linear.predict(["a good film", "poor"], "likes")[0] > linear.predict(["a good film", "poor"], "likes")[1]
    assert np.array_equal(linear.predict({"review": texts[:5]}, "likes"), linear.predict(texts[:5], "likes"))
    grid = Grid(trunk="average", capacities=[4], learning_rates=[1e-2], epochs=2)
    tokens = fit([task], advice=System.alone(["likes"], family="trunk", grid=grid, folds=2), workers=1)
    assert tokens.predict(texts, "likes").shape == (90,)
    assert tokens.spaces[0].featurizer is None


def test_tasks_with_columns_of_their_own_are_fitted_apart() -> None:
    other = Task("z", {"only": np.arange(40.0)}, np.arange(40.0) * 2 + np.resize([0.0, 0.5], 40))
    model = fit([linear_task(), other], family="linear")
    assert len(model.spaces) == 2
    frame = {f"x{i}": X[:3, i] for i in range(4)} | {"only": np.arange(3.0)}
    assert set(model.predict(frame)) == {"y", "z"}
    assert model.predict({"only": [5.0]}, "z") == pytest.approx(10.25, abs=0.3)


def test_a_task_too_small_to_hold_rows_out_is_fitted_and_said() -> None:
    tiny = Task("tiny", X[:4], [0.0, 1.5, 2.0, 3.0])
    model = fit([linear_task(), tiny])
    assert model.tasks["tiny"].errors is None
    assert any("'tiny' is too small" in line for line in model.notes)
    assert np.isinf(model.intervals(X[:2], "tiny")).all()


def test_settings_that_no_network_reads_are_said() -> None:
    plans = [TaskPlan(name="y", settings={"capacity": 3}), TaskPlan(name="z", recipe="joint")]
    model = fit([linear_task(), linear_task("z")], advice=System(tasks=plans))
    assert [note for note in model.notes if "these tasks are linear" in note and note.endswith(": 'y'")]


def test_sources_given() -> None:
    tasks = TaskSet([linear_task(), linear_task("z")])
    with pytest.raises(UnknownNameError, match="no task named 'y' in the advice"):
        fit(tasks, advice=System.alone(["other"]))
    joint = System(tasks=[TaskPlan(name="y", recipe="joint"), TaskPlan(name="gone")])
    with pytest.raises(InputError, match="joins task 'y' with 'gone'"):
        fit(tasks, advice=joint)
    with pytest.raises(InputError, match="goes without advice"):
        fit(tasks, advice=System.alone(["y", "z"]), family="linear")
    partly = fit(tasks, advice=System.alone(["y"]), workers=1)
    assert any("not in the advice" in line for line in partly.notes)
    misspelt = fit([linear_task()], advice=System.alone(["y", "yy"]), workers=1)
    assert "in the advice, but not in the data, so left out: yy" in misspelt.notes
    with pytest.raises(InputError, match="advice is a int"):
        fit(tasks, advice=3)


def test_a_studys_folder(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    rows = np.column_stack([X, X @ [1.0, 0, 0, 0], X @ [0.0, 1, 0, 0]])
    np.savetxt(path, rows, delimiter=",", header="a,b,c,d,y,z", comments="")
    run = tmp_path / "run"
    tasks = mtlens.read_tasks(path, targets="y,z")
    mtlens.Study(tasks, out=run, families=("linear",), splits=5, workers=1, executor="here", advice=False).run()
    model = fit(run, family="linear")
    assert model.names == ("y", "z") and any("no advice.toml" in line for line in model.notes)
    System(tasks=[TaskPlan(name="y", recipe="joint"), TaskPlan(name="z")]).write(run / "advice.toml")
    assert fit(run).tasks["y"].joint is not None
    assert fit(run, targets="z").names == ("z",)
    rows[0, 0] += 1
    np.savetxt(path, rows, delimiter=",", header="a,b,c,d,y,z", comments="")
    with pytest.warns(DataWarning, match="changed since the study"):
        fit(run)
    path.unlink()
    with pytest.raises(FileError, match="there is no file"):
        fit(run)
    assert fit(run, tasks=tasks).names == ("y", "z")
    with pytest.raises(FileError, match="not that of a study"):
        fit(tmp_path)
