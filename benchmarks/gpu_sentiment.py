"""The sentence studies in full on one CUDA card, or reduced on a CPU, within a wall-clock limit.

Question: does the full sentiment-pairs (15 pairs, 6 singles, joint and Algorithm 1, 5 seeds, LSTM of width 200) end in
ten minutes on one card, and what does it say? LSTMs go as stacks, a process for each method; what has no stack there
(CNN) one by one over many processes that share the card, for a single network of this size is bound by the launch of
its kernels and not by the card. Results are written after every seed that is finished, and what trainings said as soon
as their process has ended them (OUT/readings): a run that met its limit, or was stopped, goes on with the same command.

    python benchmarks/gpu_sentiment.py sentiment-pairs sentiment-transfer sentiment-capacity --limit 540 --out OUT

On one CPU core, reduced (width 50, five epochs, five seeds; about an hour):

    python benchmarks/gpu_sentiment.py sentiment-pairs sentiment-transfer sentiment-capacity --setting reduced \\
        --device cpu --workers 1 --no-stack --limit 7200 --out OUT

Writes NAME.SETTING.json and .svg (what ``mtlens reproduce NAME --out`` writes) and timing.NAME.SETTING.txt. Without a
name, ``--out OUT --page docs/results/sentiment.md`` writes the page of all results in OUT.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtlens.paper import sentiment
from mtlens.paper.book import as_text, write_results
from mtlens.paper.registry import Reproduction, experiment, parse_constants
from mtlens.paper.sentence_jobs import Job, Pool, Reading, can_stack, chunks, kept
from mtlens.paper.sentiment_page import write_page

STUDIES: dict[str, tuple[Callable[..., list[Job]], Callable[..., Any]]] = {
    "sentiment-pairs": (sentiment.pair_jobs, sentiment.pair_outcome),
    "sentiment-transfer": (sentiment.transfer_jobs, sentiment.transfer_outcome),
    "sentiment-capacity": (sentiment.capacity_jobs, sentiment.capacity_outcome),
}


def main() -> None:
    options = _options()
    if not options.names:
        write_page(options.out, options.page)
        return
    began = time.perf_counter()
    changes = {"device": options.device, "workers": options.workers, "readings": str(options.out / "readings")}
    changes |= parse_constants(options.set)
    machine = f"machine: {_machine(options.device)}; {options.workers} processes; limit {options.limit:g} s"
    with Pool(options.workers) as pool:
        for name in options.names:
            c = experiment(name).configure(options.setting, seeds=options.seeds, **changes)
            left = options.limit - (time.perf_counter() - began)
            done = _study(pool, name, options.setting, c, left, options.out, options.stack)
            print(done, flush=True)
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"timing.{name}.{options.setting}.txt").write_text(f"{machine}\n{done}\n", "utf-8")
        pool.stop()
    if options.page is not None:
        write_page(options.out, options.page)


def _study(pool: Pool, name: str, setting: str, c: Any, limit: float, out: Path, stack: bool) -> str:
    """One study until it is done or the limit is met; results are written after every finished seed."""
    jobs_of, outcome_of = STUDIES[name]
    began, written = time.perf_counter(), 0
    every = list(dict.fromkeys(job for seed in range(c.seed, c.seed + c.seeds) for job in jobs_of(c, seed)))
    found: dict[Job, Reading] = {job: reading for job in every if (reading := kept(c, job)) is not None}
    read = len(found)
    waiting = _submit(pool, c, [job for job in every if job not in found], stack)
    while written < c.seeds and time.perf_counter() - began < limit:
        done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            chunk, engine = waiting.pop(future)
            if (error := future.exception()) is None:
                found.update(future.result())
            elif engine == "auto":
                print(f"{len(chunk)} trainings as stacks failed ({error!r}); they go one by one", flush=True)
                waiting |= {pool.submit(c, part, "solo"): (part, "solo") for part in chunks(chunk)}
            else:
                raise error
        seeds = len(sentiment.seeds_done(c, found, jobs_of))
        if seeds > written:
            written = seeds
            result = Reproduction(experiment(name), setting, replace(c, seeds=seeds, readings=""), outcome_of(c, found))
            write_results(result, out)
    for future in waiting:
        future.cancel()
    if written:
        print(as_text(result), flush=True)
    seconds = time.perf_counter() - began
    return (
        f"{name} ({setting}): {written} of {c.seeds} seeds, {len(found)} of {len(every)} trainings in {seconds:.0f} s"
        + f", {read} of them read from an earlier run" * (read > 0)
    )


def _submit(pool: Pool, c: Any, jobs: Sequence[Job], stack: bool) -> dict[Any, tuple[Sequence[Job], str]]:
    """What stacks goes as stacks, one process for every kind of job; everything else one by one over the others."""
    stacks: dict[tuple[Any, ...], list[Job]] = {}
    rest: list[Job] = []
    for job in jobs:
        kind = (job.method, len(job.names) > 1, job.start is not None)
        (stacks.setdefault(kind, []) if stack and can_stack(c, job) else rest).append(job)
    parts: list[tuple[Sequence[Job], Any]] = [(part, "auto") for part in stacks.values()]
    parts += [(part, "solo") for part in chunks(rest)]
    return {pool.submit(c, part, engine): (part, engine) for part, engine in parts}


def _machine(device: str) -> str:
    import torch

    card = torch.cuda.get_device_name() if device.startswith("cuda") else "no card"
    return f"{card}, {os.cpu_count()} cores, torch {torch.__version__}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STUDIES)}; none: only write the page")
    parser.add_argument("--setting", default="corrected", help="corrected, printed, script or reduced")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=max(2, (os.cpu_count() or 4) - 2))
    parser.add_argument("--no-stack", dest="stack", action="store_false", help="train every LSTM by itself")
    parser.add_argument("--out", type=Path, default=Path("sentiment-results"))
    parser.add_argument("--set", action="append", default=[], help="change a constant, as name=value")
    parser.add_argument("--page", type=Path, help="also write this page from all results in --out")
    options = parser.parse_args()
    if unknown := set(options.names) - set(STUDIES):
        parser.error(f"no study named {', '.join(sorted(unknown))}; there are {', '.join(STUDIES)}")
    if not options.names and options.page is None:
        parser.error("name a study, or a --page to write")
    return options


if __name__ == "__main__":
    main()
