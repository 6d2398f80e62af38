"""Every name runs, twice to the same bytes, in the documented form; the book is written from the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mtlens.errors import InputError, UnknownNameError
from mtlens.paper import book, real_data
from mtlens.paper.registry import Experiment, Reproduction, experiments, parse_constants, register, reproduce

TRAINED = ("fig2-logistic", "fig2-relu", "cosine-logistic", "cosine-relu", "cosine-relu-logistic", "relu-rank")
EXACT = ("fig2-linear", "cosine-linear", "alignment-linear", "capacity-linear", "weights-noise")
NAMES = (*EXACT, "theorem-linear", "theorem-relu", *TRAINED, "alignment-relu")
CLAIM_KEYS = {"id", "statement", "where", "estimate", "low", "high", "n", "verdict", "condition"}
SMALL: dict[str, dict[str, Any]] = {  # a second each: the shape of the answer, not its statistics
    "fig2-linear": {"seeds": 2, "source_rows": (50, 200), "target_rows": (20,)},
    "cosine-linear": {"seeds": 2, "cosines": (0.0, 1.0), "rows": 60, "d": 20},
    "alignment-linear": {"seeds": 2, "source_rows": (50, 200), "steps": 20},
    "capacity-linear": {"seeds": 2, "problems": 2, "tasks": 6, "intrinsic": 2, "d": 10, "rows": 30},
    "weights-noise": {"seeds": 2, "problems": 2, "noise": (2.0,), "ranks": (1, 10)},
    "theorem-linear": {"seeds": 2, "source_rows": (50, 200), "widths": (5, 10)},
    "theorem-relu": {"seeds": 2, "source_rows": (50, 100)},
}
TINY: dict[str, dict[str, Any]] = {  # trained by descent: seconds each
    "fig2-logistic": {"seeds": 2, "source_rows": (60, 120), "epochs": (3,), "test_rows": 100},
    "fig2-relu": {"seeds": 2, "source_rows": (60, 120), "epochs": (3,), "test_rows": 100},
    "cosine-logistic": {"seeds": 2, "cosines": (0.0, 1.0), "epochs": (3,), "test_rows": 100},
    "cosine-relu": {"seeds": 2, "cosines": (0.0, 1.0), "epochs": (3,), "test_rows": 100},
    "cosine-relu-logistic": {"seeds": 2, "cosines": (0.0, 1.0), "epochs": (3,), "test_rows": 100},
    "relu-rank": {"seeds": 2, "alphas": (0.0, 1.0), "source_rows": (60, 120), "epochs": (3,), "test_rows": 100},
    "alignment-relu": {"seeds": 2, "source_rows": (60, 120), "epochs": (3,), "test_rows": 100},
}


def check_form(result: Reproduction) -> None:
    found = json.loads(result.as_json())
    assert found["name"] == result.experiment.name and found["setting"] == result.setting
    assert found["claims"] and found["points"]
    for claim in found["claims"]:
        assert claim.keys() >= CLAIM_KEYS
        assert claim["verdict"] in {"holds", "does not hold", "undecided"}
        assert claim["statement"] and claim["where"] and claim["n"] >= 1
    assert len({claim["id"] for claim in found["claims"]}) == len(found["claims"])
    for panel in result.outcome.panels:
        assert any(point["panel"] == panel.name for point in found["points"]), panel.name
    assert result.outcome.charts()


def check_twice(name: str, changes: dict[str, Any], setting: str) -> None:
    first, second = (reproduce(name, setting=setting, **changes) for _ in range(2))
    assert first.as_json() == second.as_json()
    assert Reproduction.from_json(first.as_json()).as_json() == first.as_json()
    check_form(first)


def test_every_name_of_the_issue_is_there() -> None:
    assert set(NAMES) <= set(experiments())
    assert set(NAMES) == set(SMALL) | set(TINY) == set(book.book_names())
    for chosen in (experiments()[name] for name in NAMES):
        assert set(chosen.settings) == {"printed", "corrected"}
        assert all(setting.seeds >= 20 for setting in chosen.settings.values())


@pytest.mark.medium
@pytest.mark.parametrize("setting", ["corrected", "printed"])
@pytest.mark.parametrize("name", SMALL)
def test_exact_studies_run_twice_to_the_same_bytes(name: str, setting: str) -> None:
    changes = dict(SMALL[name])
    if setting == "printed":
        changes.pop("problems", None)
        changes.pop("rows", None) if name == "capacity-linear" else None
        changes |= {"tasks": 6, "intrinsic": 6, "rows": 30} if name == "capacity-linear" else {}
        changes |= {"target_rows": (50,)} if name == "fig2-linear" else {}
        changes |= {"target_rows": 300} if name == "theorem-linear" else {}
    check_twice(name, changes, setting)


@pytest.mark.medium
@pytest.mark.parametrize("name", TINY)
def test_trained_studies_run_twice_to_the_same_bytes(name: str) -> None:
    check_twice(name, TINY[name], "corrected")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_quick_form(name: str) -> None:
    check_form(reproduce(name, quick=True))


@pytest.mark.slow
def test_the_robust_effects_show() -> None:
    """What PAPER-level checks found with many seeds must not be lost: signs, at half the seeds."""
    verdicts = {
        f.claim.id: f.verdict
        for n in ("fig2-linear", "capacity-linear", "weights-noise")
        for f in reproduce(n, seeds=20).outcome.findings
    }
    for id in (
        "fig2-linear.corrected.20.same-helps",
        "fig2-linear.corrected.20.different-hurts",
        "fig2-linear.corrected.50.ridge-beats-weak",
        "fig2-linear.score-self-law",
        "capacity-linear.corrected.1.limit",
        "tail-sum.corrected",
        "equal-covariance.corrected",
        "greedy.corrected",
        "weights-noise.corrected.ours-helps",
        "weights-noise.corrected.matches-uncertainty-mild",
    ):
        assert verdicts[id] == "holds", id
    for id in (
        "fig2-linear.corrected.20.different-turns",
        "fig2-linear.score-self",
        "tail-sum.printed",
        "equal-covariance.printed",
        "greedy.printed",
        "weights-noise.remark",
    ):
        assert verdicts[id] == "does not hold", id


@pytest.mark.medium
def test_exact_statements_hold_or_fall_as_corrected() -> None:
    from mtlens.paper import propositions

    verdicts = {f.claim.id: f.verdict for f in propositions.findings(100, 6)}
    right = {
        "capacity.no-transfer",
        "capacity.found",
        "capacity.identity-example",
        "capacity.one-direction",
        "capacity.classification",
        "equal-covariance.corrected",
        "tail-sum.corrected",
        "greedy.corrected",
        "landscape.equal-covariances",
    }
    wrong = {"equal-covariance.printed", "tail-sum.printed", "greedy.printed", "greedy.printed-sum"}
    assert {id for id in verdicts if verdicts[id] == "holds"} >= right
    assert {id for id in verdicts if verdicts[id] == "does not hold"} >= wrong


def test_seeds_and_constants_change_the_result() -> None:
    base, seed, kappa = (
        reproduce("theorem-relu", **SMALL["theorem-relu"], **more).as_dict()["points"]
        for more in ({}, {"seed": 5}, {"kappa": 4.0})
    )
    assert base != seed and base != kappa


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: reproduce("fig3"), UnknownNameError, "no reproduction named 'fig3'"),
        (
            lambda: reproduce("fig2-linear", setting="both"),
            UnknownNameError,
            "no setting named 'both' in reproduce fig2-linear",
        ),
        (lambda: reproduce("fig2-linear", kapa=1.0), UnknownNameError, "Did you mean 'kappa'"),
        (lambda: reproduce("fig2-linear", seeds=0), InputError, "seeds must be at least 1, found 0"),
        (lambda: parse_constants(["kappa"]), InputError, "name=value, found 'kappa'"),
        (lambda: reproduce("fig2-linear", target_rows=(20, 20)), InputError, "target_rows holds 20 twice"),
        (lambda: reproduce("cosine-linear", cosines=0.5), InputError, "cosines has the one value 0.5, but claims"),
        (
            lambda: reproduce("fig2-linear", kappa=1e300),
            InputError,
            "kappa must be between 1 and 1e\\+06, found 1e\\+300",
        ),
        (lambda: reproduce("fig2-relu", test_rows=1), InputError, "test_rows must be at least 3"),
        (lambda: reproduce("alignment-linear", valid_rows=0), InputError, "stops by validation rows"),
        (lambda: reproduce("alignment-linear", rate=100), InputError, "rate must be below 2, found 100"),
        (lambda: reproduce("capacity-linear", intrinsic=60), InputError, "at most d = 50, found 60"),
        (lambda: reproduce("capacity-linear", tasks=1), InputError, "up to the number of tasks: found 1"),
        (lambda: reproduce("weights-noise", separate_d=1), InputError, r"at most 1 \(d and separate_d\), found 2"),
        (lambda: reproduce("weights-noise", tasks=1), InputError, "must be at least 2, found 1 and 6"),
        (lambda: reproduce("weights-noise", clean_noise=2), InputError, "must lie above it, found 0.5"),
        (
            lambda: reproduce("theorem-linear", target_rows=5),
            InputError,
            "target_rows must be at least d = 10, found 5",
        ),
        (lambda: reproduce("theorem-relu", target_rows=5), InputError, "target_rows must be at least d = 10, found 5"),
    ],
)
def test_what_is_asked_wrongly_is_said(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("theorem-linear", {"sine": 0.0}),  # infinitely many rows needed
        ("theorem-linear", {"sine": 0.5}),  # c above 1/3 with target noise: the theorem says nothing
        ("alignment-linear", {"target_rows": (1,)}),  # fitted exactly: nothing to descend from
        ("alignment-linear", {"folds": 500}),
        ("fig2-relu", {"lrs": (1e9,)}),  # every training fails
    ],
)
def test_constants_at_the_edge_still_give_findings(name: str, changes: dict[str, Any]) -> None:
    result = reproduce(name, **(SMALL | TINY)[name] | changes)
    assert result.outcome.findings
    claims = {f.claim.id for f in result.outcome.findings}
    assert ("theorem-linear.corrected.bound" in claims) == (changes == {"sine": 0.0})


@pytest.mark.medium
def test_no_transfer_is_claimed_at_full_capacity_only() -> None:
    for ranks, told in (((1, 3), False), ((1, 10), True)):
        found = reproduce("weights-noise", **SMALL["weights-noise"] | {"ranks": ranks, "problems": 0}).outcome.findings
        assert any(f.claim.id.endswith(".capacity-first") for f in found) == told


@pytest.mark.medium
def test_the_linear_theorem_is_tried_where_all_of_its_conditions_hold() -> None:
    """The default problem gives as many source rows as the calculator asks for, and the remarks are judged."""
    found = reproduce("theorem-linear", seeds=3, widths=(5, 10)).outcome.findings
    verdicts = {f.claim.id.removeprefix("theorem-linear.corrected."): f.verdict for f in found}
    holding = {"conditions", "rows", "bound", "lemma", "theorem.trade-off", "theorem.no-noise"}
    assert {id: verdicts[id] for id in holding} == dict.fromkeys(holding, "holds")
    assert verdicts["guarantee"] != "holds" and {"theorem.depends-on-kappa", "theorem.depends-on-sine"} <= set(verdicts)


def test_a_name_is_taken_once() -> None:
    taken = experiments()["fig2-linear"]
    register(taken)  # the same again changes nothing
    other = Experiment(name="fig2-linear", title="t", where="w", settings={}, run=lambda settings: taken.run(settings))
    with pytest.raises(InputError, match="'fig2-linear' is registered already"):
        register(other)


def test_the_book_from_results(tmp_path: Path) -> None:
    changes = SMALL["theorem-relu"]
    result = reproduce("theorem-relu", **changes)
    paths = book.write_results(result, tmp_path)
    assert [p.name for p in paths] == ["theorem-relu.corrected.json", "theorem-relu.corrected.svg"]
    results = [result, real_data.reproduction()]
    text, page, lines = (
        book.as_markdown(results, command="c"),
        book.as_page(results, command="<c>"),
        book.as_book(results),
    )
    for finding in (f for r in results for f in r.outcome.findings):
        assert re.sub(r"([|<])", r"\\\1", finding.claim.statement) in text
        assert finding.claim.statement in lines
    assert page.count("<svg") == 1 and "&lt;c&gt;" in page
    assert not re.search(r"(src|href)=\"(http|//)", page)  # offline
    assert book.summary(results) in text and book.summary(results) in page


def test_resume_reads_what_was_run_with_the_same_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["theorem-relu"]
    lines: list[str] = []
    args: dict[str, Any] = {
        "settings": ("corrected",),
        "folder": tmp_path,
        "resume": True,
        "tell": lines.append,
        "quick": True,
    }
    chosen = experiments()["theorem-relu"]
    monkeypatch.setitem(chosen.quick, "source_rows", (50, 100))  # type: ignore[index]
    first = book.run_book(names, seeds=2, **args)
    again = book.run_book(names, seeds=2, **args)
    book.run_book(names, seeds=3, **args)
    assert [line.split(": ")[1] for line in lines] == ["running", "read", "running"]
    assert first[0].as_json() == again[0].as_json()


def test_real_data_claims_are_listed_as_unmeasured() -> None:
    mean, *findings = real_data.reproduction().outcome.findings
    assert mean.verdict == "does not hold" and mean.estimate == pytest.approx(520.7 / 6 - 85.1)
    assert len(findings) >= 10 and all(f.n == 0 and f.verdict == "undecided" and f.claim.condition for f in findings)


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"could not write .* Choose a folder"):
        book.write_text(tmp_path / "file" / "x.md", "text")


@pytest.mark.medium
def test_the_documentation_s_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(code, "docs/reproduce.md", "exec"), {})
    assert capsys.readouterr().out.strip() in {"holds", "does not hold", "undecided"}
    keys = {
        key
        for row in re.findall(r"^\| (.*?) \|", page.split("## JSON")[1], re.M)
        for key in re.findall(r"`(\w+)`", row)
    }
    assert keys == set(reproduce("theorem-relu", **SMALL["theorem-relu"]).as_dict())


def test_every_name_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text("utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


RESULTS = Path(__file__).parents[2] / "docs" / "results"


def committed() -> list[Reproduction]:
    files = [RESULTS / "paper" / f"{n}.{s}.json" for n in book.book_names() for s in ("corrected", "printed")]
    return [Reproduction.from_json(file.read_text("utf-8")) for file in files]


def test_the_committed_book_is_written_from_the_committed_results() -> None:
    results = [*committed(), real_data.reproduction()]
    page = (RESULTS / "paper-claims.md").read_text("utf-8")
    assert page == book.as_markdown(results, command="mtlens reproduce all")
    html = (RESULTS / "paper-claims.html").read_text("utf-8")
    assert book.summary(results) in html and all(f'id="{r.experiment.name}-{r.setting}"' in html for r in results)


def test_the_committed_results_are_of_the_present_constants() -> None:
    for result in committed():
        assert result.settings == result.experiment.configure(result.setting), result.experiment.name
