"""The advice record: TOML there and back, and refusals that name the task."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlens.errors import FileError, InputError, UnknownNameError
from mtlens.models.system import Grid, Group, System, TaskPlan

TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(name=TEXT, other=TEXT, evidence=TEXT, weight=st.floats(0, 2))
def test_any_text_survives_toml(name: str, other: str, evidence: str, weight: float) -> None:
    if name == other:
        other += "'"
    plans = [
        TaskPlan(name=name, recipe="group", group=other, weight=weight, evidence=evidence, settings={"capacity": 7}),
        TaskPlan(name=other, family="best", difference=-1e-30, n=3),
    ]
    system = System(
        tasks=plans, groups=[Group(name=other, tasks=[name, other])], grid=Grid(ridges=[1e-7]), summary=name
    )
    assert System.from_toml(system.to_toml()) == system


def test_written_and_read_back(tmp_path: Path) -> None:
    system = System.alone(["a", "b"], seed=3)
    assert System.read(system.write(tmp_path / "x" / "advice.toml")) == system
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["advice.toml"]


def test_sources() -> None:
    system = System(
        tasks=[
            TaskPlan(name="a", recipe="joint"),
            TaskPlan(name="b", recipe="joint", sources=["c"]),
            TaskPlan(name="c", recipe="group", group="g"),
            TaskPlan(name="d"),
        ],
        groups=[Group(name="g", tasks=["d", "c", "a"])],
    )
    assert system.sources_of("a") == ("b", "c", "d")
    assert system.sources_of("b") == ("c",)
    assert system.sources_of("c") == ("a", "d")
    assert system.sources_of("d") == ()
    with pytest.raises(UnknownNameError, match="no task named 'x' in the advice"):
        system.plan_of("x")


def test_whole_numbers_may_stand_for_floats() -> None:
    system = System.from_toml('[grid]\nridges = [1, 2]\n[[task]]\nname = "a"\nrecipe = "joint"\nweight = 1\n')
    assert system.plan_of("a").weight == 1.0 and system.grid.ridges == [1.0, 2.0]


A = '[[task]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("= 3", "the advice is not valid TOML"),
        ("", "has no 'task'"),
        ("version = 2\n" + A, "says version 2; this mtlens reads version 1"),
        (A + 'recipe = "joined"', "task 'a': recipe .*'alone', 'joint'"),
        (A + "weight = -1.0", "task 'a': weight .*greater than or equal to 0.*found -1.0"),
        (A + "weight = nan", "task 'a': weight .*finite"),
        (A + "wieght = 1.0", "no key named 'wieght' in the advice, task 'a'.*Did you mean 'weight'"),
        (A + A, "the advice: two tasks are named 'a'"),
        (A + 'weight = "half"', "task 'a': weight must be a valid number .found 'half'.\\.$"),
        (
            A + 'recipe = "joint"\nsources = ["aa"]',
            r"the advice: no task named 'aa' in the sources of task 'a'.*'a'\?$",
        ),
        (A + 'recipe = "joint"\nsources = ["a"]', "source of itself"),
        (A + 'sources = ["b"]', "recipe 'alone' has no sources"),
        (A + 'recipe = "group"', "needs group"),
        (A + 'recipe = "group"\ngroup = "g"', "asks for group 'g', which does not list it"),
        (A + 'recipe = "shrink"\njoint_family = "trunk"', "recipe 'shrink' is linear"),
        (A + "settings = {widht = 3}", "settings has no 'widht'"),
        (A + 'settings = {capacity = "x"}', "task 'a': settings: capacity must be a valid integer .found 'x'.\\.$"),
        (A + "settings = {lr = -1}", "task 'a': settings: lr must be greater than 0 .found -1"),
        (A + 'settings = {align = "none"}', "settings: align must be 'fixed' or 'joint' .found 'none'"),
        ("[grid]\ncapacities = []\n" + A, r"\[grid\]: capacities must have at least 1 item \(found \[\]\)\.$"),
        ("[grid]\ncapacities = [1000000000000]\n" + A, "capacities must hold numbers up to 1000000, not 1000000000000"),
        ("[grid]\nlearning_rates = [0.0]\n" + A, "learning_rates must hold numbers above zero"),
        ("[grid]\nwidth = 3\n" + A, "no key named 'width'"),
        ("tsak = 3\n" + A, r"no key named 'tsak' .*keys: .*, grid, task, group\)\. Did you mean 'task'"),
        ("task = 3", "tasks .*list"),
    ],
)
def test_mistakes_are_said_with_their_task(text: str, said: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=said):
        System.from_toml(text)


def test_files_that_are_no_advice(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no advice at .*: No such file or directory\. `mtlens study`"):
        System.read(tmp_path / "advice.toml")
    (tmp_path / "latin.toml").write_bytes(b"summary = '\xe9'")
    with pytest.raises(FileError, match="not UTF-8"):
        System.read(tmp_path / "latin.toml")
    with pytest.raises(FileError, match="cannot be written"):
        (tmp_path / "file").write_text("")
        System.alone(["a"]).write(tmp_path / "file" / "advice.toml")
    with pytest.raises(InputError, match="valid string"):
        System.alone(["\ud800"])
