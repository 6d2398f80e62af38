"""The sentence studies: their data, their trainings, and what they conclude from readings."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import numpy as np
import pytest

from mtlens.errors import FileError, InputError, UnknownNameError
from mtlens.paper import sentence_jobs, sentiment
from mtlens.paper.book import write_results
from mtlens.paper.registry import Reproduction, experiment, reproduce
from mtlens.paper.sentence_jobs import Job, Reading, chunks, factor, keep, kept, run_jobs
from mtlens.paper.sentences import DATA_VARIABLE, FILES, SIX, SentimentSettings, data_folder, sentence_tasks
from mtlens.paper.sentiment_page import write_page
from mtlens.tasks import find_duplicates

GOOD, BAD = ["great", "lovely", "brilliant", "moving"], ["dull", "awful", "boring", "weak"]
FILL = ["the", "film", "a", "plot", "was", "very", "quite", "and", "of", "in", "story"]
TINY = {"tasks": ("SST", "MR", "TREC"), "seeds": 2, "epochs": 2, "tune_epochs": 2, "capacity": 4, "capacities": (2, 4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of the real layout: 160 sentences a task, half of MR's also in SST."""
    root = tmp_path_factory.mktemp("data")
    (root / "text6").mkdir()
    (root / "glove").mkdir()
    rng = np.random.default_rng(0)
    sst = [_sentence(rng) for _ in range(160)]
    for name, file in FILES.items():
        own = [_sentence(rng) for _ in range(160)]
        rows = sst if name == "SST" else sst[:80] + own[80:] if name == "MR" else own
        parts = {"SST": ["train"] * 100 + ["dev"] * 30 + ["test"] * 30, "TREC": ["train"] * 110 + ["test"] * 50}
        lines = [
            f"{part}\t{i % 3 if name == 'TREC' else label}\t{text} {i if name != 'MR' else ''}".rstrip()
            for i, (part, (label, text)) in enumerate(zip(parts.get(name, ["all"] * 160), rows, strict=True))
        ]
        if name == "MR":  # the very sentences of SST, with its numbers
            lines = [f"{line} {i}" for i, line in enumerate(lines)]
        with gzip.open(root / "text6" / f"{file}.tsv.gz", "wt", encoding="utf-8") as stream:
            stream.write("\n".join(["split\tlabel\ttext", *lines]) + "\n")
    words = [*GOOD, *BAD, *FILL]
    vectors = rng.normal(size=(len(words), 6)).astype(np.float16)
    np.savez(root / "glove" / "glove6b_100d_subset.npz", words=np.array(words), vectors=vectors)
    return root


def _sentence(rng: np.random.Generator) -> tuple[int, str]:
    label = int(rng.integers(2))
    words = [*rng.choice(FILL, 5), *rng.choice(GOOD if label else BAD, 2)]
    return label, " ".join(rng.permutation(words))


def settings(folder: Path, **changes: object) -> SentimentSettings:
    return SentimentSettings(**{"data": str(folder), **TINY, **changes})  # type: ignore[arg-type]


# Data ----------------------------------------------------------------------------------------------------------------


def test_the_folder_is_given_named_or_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert data_folder(str(folder)) == folder
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    assert data_folder() == folder
    with pytest.raises(FileError, match=r"'nowhere' is none. Name it with --set data=FOLDER"):
        data_folder("nowhere")
    monkeypatch.delenv(DATA_VARIABLE)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "data").symlink_to(folder)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert data_folder() == tmp_path / "shared" / "data"


def test_official_parts_stay_and_the_rest_is_drawn(folder: Path) -> None:
    kept = sentence_tasks(settings(folder, duplicates="keep"), 0)
    sizes = {t.name: [int((t.split == part).sum()) for part in ("train", "valid", "test")] for t in kept}
    # at least five rows of each of TREC's three classes must be in its validation part
    assert sizes == {"SST": [100, 30, 30], "MR": [128, 16, 16], "TREC": [95, 15, 50]}
    assert all(task.metric == "accuracy" for task in kept)
    again = sentence_tasks(settings(folder, duplicates="keep"), 1)
    assert (again["SST"].split == kept["SST"].split).all()
    assert (again["MR"].split != kept["MR"].split).any()


def test_no_sentence_is_trained_on_and_scored_anywhere(folder: Path) -> None:
    assert any(o.leaks for o in find_duplicates(sentence_tasks(settings(folder, duplicates="keep"), 0)).across)
    clean = sentence_tasks(settings(folder), 0)
    found = find_duplicates(clean)
    assert not any(overlap.leaks for overlap in found.across)
    assert not any(within.across_splits for within in found.within.values())
    assert (clean["SST"].split == "test").sum() == 30


def test_reduced_runs_keep_at_most_so_many_rows(folder: Path) -> None:
    few = sentence_tasks(settings(folder, train_rows=40, test_rows=10), 0)
    for task in few:
        assert [len(task.rows_of(part)) for part in ("train", "valid", "test")] == [40, 10, 10]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"no sentence task named 'SST2'.*Did you mean 'SST'"):
        SentimentSettings(tasks=("SST2", "MR"))
    with pytest.raises(InputError, match="at least two tasks"):
        SentimentSettings(tasks=("MR",))
    with pytest.raises(UnknownNameError, match="no duplicates named 'maybe'"):
        SentimentSettings(duplicates="maybe")  # type: ignore[arg-type]


# Jobs ----------------------------------------------------------------------------------------------------------------


def test_the_full_protocol_is_what_the_paper_ran() -> None:
    full = sentiment.CORRECTED
    jobs = sentiment.pair_jobs(full, 0)
    assert len(jobs) == len(set(jobs)) == 2 * 6 + 2 * 15  # the tasks alone, for twice the epochs too
    assert (full.seeds, full.capacity, full.tasks) == (5, 200, SIX)
    assert len(set(sentiment.transfer_jobs(full, 0))) == 5 * 5
    fixed = sentiment.pair_jobs(sentiment.PRINTED, 0)
    assert len(fixed) == 2 * 6 + 3 * 15  # and the same extra epochs without R
    assert all(job.start in fixed for job in fixed if job.method == "align-fixed")


def test_chunks_keep_a_job_with_its_start() -> None:
    start = Job(0, ("SST",))
    jobs = [Job(0, ("MR",)), Job(0, ("MR",), start=start), Job(0, ("CR",), start=start), start]
    assert [len(chunk) for chunk in chunks(jobs)] == [3, 1]
    assert sorted(map(repr, jobs)) == sorted(repr(job) for chunk in chunks(jobs) for job in chunk)


def test_a_factor_has_the_covariance() -> None:
    X = np.random.default_rng(0).normal(size=(20, 4))
    rows = factor(X.T @ X)
    np.testing.assert_allclose(rows.T @ rows, X.T @ X, atol=1e-12)


# Conclusions from made-up readings: no training ----------------------------------------------------------------------


def reading(job: Job, value: float, covariance: np.ndarray | None = None) -> Reading:
    scores = dict.fromkeys(job.names, value)
    known = {} if covariance is None else dict.fromkeys(job.names, covariance)
    return Reading({"train": scores, "valid": scores, "test": scores}, 1, 0.1, known)


def verdicts(outcome: object) -> dict[str, str]:
    return {finding.claim.id: finding.verdict for finding in outcome.findings}  # type: ignore[attr-defined]


def test_pairs_are_judged_by_their_differences() -> None:
    c = SentimentSettings(seeds=3)
    flat, steep = np.eye(3), np.diag([9.0, 1e-3, 1e-3])  # the steep spectrum has the higher score as printed

    def value(job: Job) -> Reading:
        level = {"plain": 0.80 if len(job.names) == 1 else 0.82, "align": 0.83}[job.method]
        level = 0.84 if job.epochs == 2 * c.epochs else level
        level += 0.001 * job.seed
        return reading(job, level, steep if job.method == "align" else flat)

    jobs = [job for seed in range(3) for job in sentiment.pair_jobs(c, seed)]
    outcome = sentiment.pair_outcome(c, {job: value(job) for job in jobs})
    found = verdicts(outcome)
    assert found["sentiment-pairs-share"] == found["sentiment-pairs-mean"] == found["sentiment-pairs-joint"] == "holds"
    assert found["sentiment-pairs-longer"] == found["sentiment-pairs-joint-longer"] == "does not hold"
    assert found["sentiment-pairs-score"] == "holds"
    normalised = next(f for f in outcome.findings if f.claim.id == "sentiment-pairs-normalised")
    assert normalised.estimate == pytest.approx(0, abs=1e-9)  # equal covariances, before and after
    assert found["sentiment-single-SST"] == "holds" and found["sentiment-single-SUBJ"] == "does not hold"
    change = [p for p in outcome.points if p.panel == "change" and p.series == "Algorithm 1 minus joint"]
    assert len(change) == 15 and all(p.mean == pytest.approx(1.0) and p.n == 3 for p in change)


def test_a_fixed_shared_module_stands_beside_the_same_extra_epochs() -> None:
    c = SentimentSettings(seeds=2, align="fixed")

    def value(job: Job) -> Reading:
        level = {"plain": 0.8 + 0.05 * (job.start is not None), "align-fixed": 0.82}[job.method]
        return reading(job, level + 0.001 * job.seed, np.eye(2))

    jobs = [job for seed in range(2) for job in sentiment.pair_jobs(c, seed)]
    found = verdicts(sentiment.pair_outcome(c, {job: value(job) for job in jobs}))
    assert found["sentiment-pairs-mean"] == "holds" and found["sentiment-pairs-extra"] == "does not hold"


def test_a_capacity_is_chosen_on_validation_rows() -> None:
    c = SentimentSettings(seeds=3, capacities=(5, 100))

    def value(job: Job) -> Reading:
        best = 100 if len(job.names) > 1 else 5
        return reading(
            job, 0.8 + 0.05 * (job.capacity == best) + 0.1 * (job.duplicates == "keep") * (len(job.names) > 1)
        )

    jobs = [job for seed in range(3) for job in sentiment.capacity_jobs(c, seed)]
    outcome = sentiment.capacity_outcome(c, {job: value(job) for job in jobs})
    found = verdicts(outcome)
    assert found["sentiment-capacity-lstm"] == "does not hold"  # 100 is not below six times 5
    assert found["sentiment-capacity-cnn-gain"] == "does not hold"  # no difference at all is no gain
    assert found["sentiment-leak-MR-kept"] == "holds"
    assert found["sentiment-leak-MR-removed"] == "does not hold"
    assert found["sentiment-table-alone-TREC"] == "holds" and found["sentiment-table-joint-MR"] == "does not hold"


def test_transfer_is_judged_beside_its_controls() -> None:
    c = SentimentSettings(seeds=3, epochs=5, tune_epochs=4)
    level = {"plain": 0.8, "align": 0.85, "align-fixed": 0.7}

    def value(job: Job) -> Reading:
        extra = 0.1 * (job.epochs > c.tune_epochs) if job.start is None else 0.02
        return reading(job, level[job.method] + extra)

    jobs = [job for seed in range(3) for job in sentiment.transfer_jobs(c, seed)]
    outcome = sentiment.transfer_outcome(c, {job: value(job) for job in jobs})
    assert all("5 epochs" in f.claim.condition and "4 on a target" in f.claim.condition for f in outcome.findings)
    found = verdicts(outcome)
    assert found["sentiment-transfer-MR"] == found["sentiment-transfer-aligned-tuned"] == "holds"
    assert found["sentiment-transfer-fixed-tuned"] == found["sentiment-transfer-aligned-longer"] == "does not hold"


def test_only_finished_seeds_count() -> None:
    c = SentimentSettings(seeds=2)
    first = {job: reading(job, 0.8, np.eye(2)) for job in sentiment.pair_jobs(c, 0)}
    assert sentiment.seeds_done(c, first, sentiment.pair_jobs) == [0]


def test_reduced_runs_say_nothing_about_printed_accuracies() -> None:
    c = SentimentSettings(seeds=2, train_rows=100)
    jobs = [job for seed in range(2) for job in sentiment.pair_jobs(c, seed)]
    outcome = sentiment.pair_outcome(c, {job: reading(job, 0.5, np.eye(2)) for job in jobs})
    assert not any("single" in id for id in verdicts(outcome))
    assert all("at most 100 train rows" in finding.claim.condition for finding in outcome.findings)


def test_the_page_puts_the_printed_number_beside_ours(tmp_path: Path) -> None:
    c = SentimentSettings(seeds=2)
    parts = {
        "sentiment-pairs": (sentiment.pair_jobs, sentiment.pair_outcome),
        "sentiment-transfer": (sentiment.transfer_jobs, sentiment.transfer_outcome),
        "sentiment-capacity": (sentiment.capacity_jobs, sentiment.capacity_outcome),
    }
    for name, (jobs_of, outcome_of) in parts.items():
        jobs = [job for seed in range(2) for job in jobs_of(c, seed)]
        outcome = outcome_of(c, {job: reading(job, 0.8 + 0.01 * job.seed, np.eye(2)) for job in jobs})
        write_results(Reproduction(experiment(name), "corrected", c, outcome), tmp_path / "results")
    (tmp_path / "results" / "timing.corrected.txt").write_text("machine: a card\n", "utf-8")
    text = write_page(tmp_path / "results", tmp_path / "sentiment.md").read_text("utf-8")
    assert "machine: a card" in text
    assert "| SST | 82.3 | 78 to 82 | 80.5 [" in text
    assert "| MR | 76.4 | 96.0 | 80.5 [" in text
    assert "![Does Algorithm 1 help pairs, and does the score rise?](results/sentiment-pairs.corrected.svg)" in text
    assert (tmp_path / "results" / "sentiment-pairs.corrected.svg").is_file()
    assert text.count("| SST + MR |") == 1 and text.count("\n## sentiment-") == 3
    with pytest.raises(FileError, match="holds no sentiment"):
        write_page(tmp_path, tmp_path / "none.md")


# Readings that are kept ----------------------------------------------------------------------------------------------


def test_a_kept_reading_is_found_by_the_same_training_only(folder: Path, tmp_path: Path) -> None:
    c = settings(folder, readings=str(tmp_path / "readings"))
    job, said = Job(0, ("SST",), covariances=True), reading(Job(0, ("SST",)), 0.8, np.arange(4.0).reshape(2, 2) / 3)
    assert kept(c, job) is None
    keep(c, job, said)
    found = kept(dataclasses.replace(c, seeds=9, seed=4, workers=2), dataclasses.replace(job, capacity=c.capacity))
    assert found is not None and found.scores == said.scores
    np.testing.assert_array_equal(found.covariances["SST"], said.covariances["SST"])
    for other in ({"lr": 1e-4}, {"capacity": 5}, {"epochs": 3}, {"train_rows": 10}, {"tasks": ("SST", "TREC")}):
        assert kept(dataclasses.replace(c, **other), job) is None  # type: ignore[arg-type]
    assert kept(c, Job(1, ("SST",), covariances=True)) is None
    assert kept(c, dataclasses.replace(job, start=Job(0, ("MR",)))) is None
    keep(dataclasses.replace(c, readings=""), Job(1, ("SST",)), said)  # without a folder nothing is written
    assert [file.suffix for file in (tmp_path / "readings").iterdir()] == [".npz"]


@pytest.mark.medium
def test_an_interrupted_study_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = settings(folder, tasks=("SST", "MR"), seeds=1, epochs=1)
    start = Job(0, ("SST",))
    jobs = [Job(0, ("MR",)), start, Job(0, ("MR",), "align-fixed", start=start), Job(0, ("MR",), covariances=True)]
    whole = run_jobs(c, jobs)
    resumed = dataclasses.replace(c, readings=str(tmp_path))
    run_jobs(resumed, jobs[:2])
    trained: list[Job] = []
    monkeypatch.setattr(
        sentence_jobs, "run_here", lambda c, jobs, run=sentence_jobs.run_here: (trained.extend(jobs), run(c, jobs))[1]
    )
    found = run_jobs(resumed, jobs)
    assert trained == jobs[2:]
    assert {job: one.scores for job, one in found.items()} == {job: one.scores for job, one in whole.items()}
    run_jobs(resumed, jobs)
    assert trained == jobs[2:]


# Real trainings ------------------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_trainings_after_stacks_fork_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process forked after stacks were trained on threads here hung in the matrix library."""
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a process was forked"))
    c = settings(folder, tasks=("SST", "MR"), seeds=1, epochs=1)
    jobs = [Job(0, names, trunk=trunk) for trunk in ("average", "cnn") for names in (("SST",), ("MR",), ("SST", "MR"))]
    assert set(run_jobs(c, jobs)) == set(jobs)


@pytest.mark.slow
def test_readings_do_not_depend_on_where_they_are_made(folder: Path) -> None:
    c = settings(folder)
    start = Job(0, ("SST",))
    jobs = [Job(0, ("SST", "MR"), "align", covariances=True), start, Job(0, ("MR",), "align-fixed", start=start)]
    here, there = run_jobs(c, jobs), run_jobs(dataclasses.replace(c, workers=2), jobs)
    for job in jobs:
        assert here[job].scores == there[job].scores
        for name, covariance in here[job].covariances.items():
            np.testing.assert_array_equal(covariance, there[job].covariances[name])


@pytest.mark.medium
@pytest.mark.parametrize("setting", ["corrected", "printed", "script"])
def test_every_name_runs_in_every_setting(folder: Path, setting: str) -> None:
    small = TINY | {"tasks": ("SST", "MR"), "capacities": (2,), "seeds": 1, "epochs": 1, "tune_epochs": 1}
    result = reproduce("sentiment-all", setting=setting, data=str(folder), **small)
    panels = {panel.name for panel in result.outcome.panels}
    drawn = {point.panel for point in result.outcome.points}
    assert panels == {"lstm", "average", "cnn", "leak", "transfer", "single", "change", "score", "normalised"}
    assert drawn == (panels if setting == "corrected" else panels - {"leak"})
    assert all(finding.claim.condition for finding in result.outcome.findings)


@pytest.mark.medium
def test_one_seed_gives_the_same_bytes_twice(folder: Path) -> None:
    small = TINY | {"tasks": ("SST", "MR"), "seeds": 1, "epochs": 1, "data": str(folder)}
    first, second = (reproduce("sentiment-pairs", **small).as_json() for _ in range(2))  # type: ignore[arg-type]
    assert first == second


def test_the_names_are_registered_and_stay_out_of_the_book() -> None:
    for name in ("sentiment-capacity", "sentiment-transfer", "sentiment-pairs", "sentiment-all"):
        assert set(experiment(name).settings) == {"corrected", "printed", "script", "reduced"}
        assert not experiment(name).part_of_book


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["sentiment-capacity", "sentiment-transfer", "sentiment-pairs"])
def test_the_reduced_protocol_on_the_real_sentences(real_data: Path, name: str) -> None:
    result = reproduce(name, quick=True, data=str(real_data))
    assert all(np.isfinite(point.mean) and point.n == 2 for point in result.outcome.points)
    assert all(
        finding.n >= 2 and "at most 600 train rows" in finding.claim.condition for finding in result.outcome.findings
    )


@pytest.mark.slow
@pytest.mark.data
def test_shared_sentences_make_joint_training_look_good(real_data: Path) -> None:
    """The published gain of SST (82.3 alone, 90.8 joint) is there with shared sentences and gone without them."""
    c = SentimentSettings(data=str(real_data), capacity=50, epochs=5)
    jobs = {
        keep: (Job(0, ("SST", "MR"), duplicates=keep), Job(0, ("SST",), duplicates=keep)) for keep in ("keep", "drop")
    }
    found = run_jobs(c, [job for pair in jobs.values() for job in pair])
    gain = {keep: found[joint].test("SST") - found[alone].test("SST") for keep, (joint, alone) in jobs.items()}
    assert gain["keep"] > 4 > 3 > gain["drop"], gain
    assert 77 < found[jobs["drop"][1]].test() < 83
