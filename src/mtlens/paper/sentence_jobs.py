"""The trainings of the sentence studies: small descriptions, run in any order and anywhere, read as plain numbers."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mtlens.arrays import FloatArray
from mtlens.errors import TrainingError
from mtlens.paper.sentences import SentimentSettings, data_folder, sentence_tasks, word_vectors

Method = Literal["plain", "align", "align-fixed"]
Engine = Literal["auto", "bank", "process", "solo"]


@dataclass(frozen=True)
class Job:
    """One training: some tasks together, a method, and what it starts from. Everything else is in the settings.

    ``duplicates`` empty means the settings' own; ``covariances`` asks for the embedding covariances too.
    """

    seed: int
    names: tuple[str, ...]
    method: Method = "plain"
    capacity: int = 0
    trunk: str = ""
    epochs: int = 0
    start: Job | None = None
    duplicates: str = ""
    covariances: bool = False


@dataclass(frozen=True)
class Reading:
    """What a finished job says: accuracies by part and task, seconds, and ``(d, d)`` covariances of the embeddings."""

    scores: dict[str, dict[str, float]]
    epoch: int
    seconds: float
    covariances: dict[str, FloatArray] = field(default_factory=dict)

    def test(self, *names: str) -> float:
        """Mean test accuracy over some tasks (all when none is named), in percent."""
        found = self.scores["test"]
        return 100 * float(np.mean([found[name] for name in names or found]))

    def valid(self) -> float:
        """Mean validation accuracy over the tasks, in percent."""
        return 100 * float(np.mean(list(self.scores["valid"].values())))


def run_jobs(c: SentimentSettings, jobs: Sequence[Job]) -> dict[Job, Reading]:
    """All jobs, each once, without those that are kept. With ``workers`` > 1 in that many processes; otherwise here, in
    one call of the engine, or with a folder of readings one by one, so that an interrupted run loses one training."""
    wanted = list(dict.fromkeys(jobs))
    found = {job: reading for job in wanted if (reading := kept(c, job)) is not None}
    missing = [job for job in wanted if job not in found]
    if c.workers > 1:
        with Pool(c.workers) as pool:
            for future in as_completed([pool.submit(c, chunk) for chunk in chunks(missing)]):
                found.update(future.result())
    else:
        for part in chunks(missing) if c.readings else [missing]:
            found.update(run_here(c, part))
    return {job: found[job] for job in wanted}


def run_here(c: SentimentSettings, jobs: Sequence[Job], engine: Engine = "auto") -> dict[Job, Reading]:
    """Jobs in this process: first those that others start from, then the rest, each wave one call of ``train``."""
    from mtlens.engine import train

    models: dict[Job, Any] = {}
    found: dict[Job, Reading] = {}
    starts = list(dict.fromkeys(job.start for job in jobs if job.start is not None))
    for wave in (starts, [job for job in jobs if job not in set(starts)]):
        if not wave:
            continue
        asked = [training_of(c, job, models) for job in wave]
        # one worker: how many processes train at once is the settings' word, and this is one of them
        trained = train(asked, engine=engine, device=c.device, workers=1, progress=False)
        for job, one in zip(wave, trained, strict=True):
            if not one.ok:
                raise TrainingError(f"{'+'.join(job.names)} ({job.method}), seed {job.seed}, ended with: {one.reason}.")
            found[job] = _reading(job, one)
            if job in starts:
                models[job] = one
            keep(c, job, found[job])
    return {job: found[job] for job in jobs}


def training_of(c: SentimentSettings, job: Job, models: dict[Job, Any]) -> Any:
    """The engine's training for a job."""
    from mtlens.engine import Training
    from mtlens.nets.text_families import TextFamily

    trunk = job.trunk or c.trunk
    options: dict[str, Any] = {"depth": c.depth, "last": c.last} if trunk == "lstm" else {}
    embeddings: Any = c.embeddings
    family = TextFamily(trunk, embeddings=embeddings, vectors=word_vectors(data_folder(c.data)), **options)
    return Training(
        sentence_tasks(c, job.seed, job.duplicates or c.duplicates).subset(job.names),
        trunk=family,
        capacity=job.capacity or c.capacity,
        align={"plain": None, "align": "joint", "align-fixed": "fixed"}[job.method],
        lr=c.lr,
        epochs=job.epochs or c.epochs,
        batch=c.batch,
        steps="mixed",
        select="best",
        seed=job.seed,
        start_from=None if job.start is None else models[job.start],
    )


def _reading(job: Job, trained: Any) -> Reading:
    epoch = int(np.asarray(trained.history["epoch"]))
    return Reading(trained.scores, epoch, trained.seconds, _covariances(trained) if job.covariances else {})


def _covariances(trained: Any) -> dict[str, FloatArray]:
    """``X^T X`` of each task's running train words, ``X`` their embeddings *after* alignment, before the encoder."""
    net = trained.model.net
    table = net.trunk.embedding.weight.detach().cpu().double().numpy()
    found = {}
    for place, task in enumerate(trained.training.tasks):
        ids = trained.model.inputs.encode(task.take(task.rows_of("train")))
        counts = np.bincount(np.asarray(ids).ravel(), minlength=len(table)).astype(np.float64)
        counts[0] = 0.0  # padding
        X = table if net.align is None else table @ net.align[place].matrix().detach().cpu().double().numpy()
        found[task.name] = (X * counts[:, None]).T @ X
    return found


def kept(c: SentimentSettings, job: Job) -> Reading | None:
    """What an earlier run of the same training, settings and data folder said, if it is in ``c.readings``."""
    if not c.readings or not (file := _file(c, job)).is_file():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        said = json.loads(str(arrays["reading"]))
        covariances = {name: arrays[f"covariance {name}"] for name in said.pop("covariances")}
    return Reading(**said, covariances=covariances)


def keep(c: SentimentSettings, job: Job, reading: Reading) -> None:
    """Write a reading into ``c.readings``, if there is such a folder: wholly or not at all."""
    if not c.readings:
        return
    said = {"scores": reading.scores, "epoch": reading.epoch, "seconds": reading.seconds}
    arrays = {f"covariance {name}": covariance for name, covariance in reading.covariances.items()}
    file = _file(c, job)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    file.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("wb") as stream:
        np.savez(stream, reading=json.dumps(said | {"covariances": list(reading.covariances)}), **arrays)  # type: ignore[arg-type]
    partial.replace(file)


def _file(c: SentimentSettings, job: Job) -> Path:
    """Named by everything that a reading depends on: the job with its defaults filled in, settings, data, version."""
    elsewhere = ("seeds", "seed", "data", "trunk", "capacity", "capacities", "epochs", "tune_epochs", "align",
                 "duplicates", "workers", "readings")  # fmt: skip
    shared = {name: value for name, value in asdict(c).items() if name not in elsewhere}
    from mtlens import __version__

    whole = (__version__, str(data_folder(c.data).resolve()), shared, asdict(_filled(c, job)))
    return Path(c.readings) / f"{hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]}.npz"


def _filled(c: SentimentSettings, job: Job) -> Job:
    return replace(
        job,
        trunk=job.trunk or c.trunk,
        capacity=job.capacity or c.capacity,
        epochs=job.epochs or c.epochs,
        duplicates=job.duplicates or c.duplicates,
        start=None if job.start is None else _filled(c, job.start),
    )


def factor(covariance: FloatArray) -> FloatArray:
    """``(d, d)`` rows with this covariance: what takes inputs can be asked about a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    rows: FloatArray = np.sqrt(np.clip(values, 0, None))[:, None] * vectors.T
    return rows


class Pool:
    """Processes that each train one chunk of jobs after another, on one device together."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, c: SentimentSettings, chunk: Sequence[Job], engine: Engine = "auto") -> Future[dict[Job, Reading]]:
        """Train some jobs in one of the processes."""
        return self._pool.submit(run_here, c, chunk, engine)

    def stop(self) -> None:
        """End the processes without waiting for what they are training."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list((self._pool._processes or {}).values()):
            process.terminate()


def chunks(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that start from one another together, everything else apart; the largest chunks first."""
    groups: dict[Job, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.start or job, []).append(job)
    return sorted(groups.values(), key=len, reverse=True)


def can_stack(c: SentimentSettings, job: Job) -> bool:
    """Whether the engine can train the job in a stack on a card: a one-layer LSTM over frozen vectors."""
    return (job.trunk or c.trunk) == "lstm" and c.embeddings == "frozen" and c.depth == 1 and c.last == "real"


def _one_thread() -> None:
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
