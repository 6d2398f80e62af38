"""How fast are the statistics of task covariance? Gram plus score, all pairs, and rows streamed from disk.

Question 1: covariance and score of 100,000 x 768 float32 rows, against an SVD of X in float64 and a float64 product.
Question 2: all pairwise scores of 50 tasks at 768 features, against pair by pair (each from the task's Gram; and, the
            stricter baseline, from truncated covariances that are already there).
Question 3: peak memory above the interpreter when a million rows stream from disk.

Every ratio is interleaved in this one process; medians. ``--small`` runs everything at a tenth of the rows.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mtlens import Gram, covariance_similarity, similarity_matrix

WIDTH = 768
CHUNK = 8192


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turns so that a busy machine slows all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(timed(work))
    return {name: statistics.median(values) for name, values in seconds.items()}


def realistic(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Embedding-like rows: a decaying spectrum and a common mean, float32."""
    X = rng.standard_normal((rows, WIDTH), dtype=np.float32)
    X *= (np.arange(1, WIDTH + 1) ** -0.4).astype(np.float32)
    X += np.float32(0.1)
    return X


def svd_score(X: np.ndarray, energy: float = 0.99) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of the kept covariance, the textbook way."""
    _, s, Vt = np.linalg.svd(X.astype(np.float64), full_matrices=False)
    r = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), energy - 1e-12)) + 1
    return s[:r] ** 2, Vt[:r].T


def score_of(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> float:
    F1, F2 = (vectors * np.sqrt(values) for values, vectors in (first, second))
    return float(np.linalg.norm(F1.T @ F2) / np.linalg.norm(F1) / np.linalg.norm(F2))


def gram_and_score(rows: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    X, other = realistic(rng, rows), realistic(rng, 5000)  # both sides decompose both tasks
    ours = interleaved(
        {
            "ours": lambda: covariance_similarity(Gram().update(X), Gram().update(other)),
            "gram": lambda: Gram().update(X),
            "product64": lambda: (lambda Z: Z.T @ Z)(X.astype(np.float64)),
            "general64": lambda: (lambda Z: Z.T @ Z.copy())(X.astype(np.float64)),
        },
        rounds,
    )
    svd = timed(lambda: score_of(svd_score(X), svd_score(other)))
    first, second = (Gram().update(Z) for Z in (X, other))
    exact = [Gram().update(Z.astype(np.float64)) for Z in (X, other)]
    print(f"Gram of {rows:,} x {WIDTH} float32 plus score: {ours['ours']:.3f} s (Gram alone {ours['gram']:.3f} s)")
    print(f"  SVD of X in float64: {svd:.2f} s, ratio {svd / ours['ours']:.1f}  (wanted 15)")
    for name, what in (("product64", "symmetric"), ("general64", "general")):
        print(f"  {what} float64 product: {ours[name]:.3f} s, ratio to our Gram {ours[name] / ours['gram']:.2f}")
    print("  (wanted 4; a symmetric product does half the arithmetic of a general one)")
    difference = abs(covariance_similarity(first, second) - covariance_similarity(*exact))
    print(f"  score differs from float64 throughout by {difference:.1e}  (wanted 1e-8)")


def all_pairs(tasks: int, rounds: int) -> None:
    rng = np.random.default_rng(1)
    grams = [Gram().update(realistic(rng, 1000)) for _ in range(tasks)]
    truncated = [v @ np.diag(w) @ v.T for w, v in (_kept(g.matrix) for g in grams)]
    flat = np.stack([C.ravel() for C in truncated])
    sample = [(0, 1), (2, 3), (4, 5)]
    seconds = interleaved(
        {
            "together": lambda: similarity_matrix(grams),
            "some pairs": lambda: [covariance_similarity(grams[i], grams[j]) for i, j in sample],
            "truncated together": lambda: flat @ flat.T,
            "truncated pairs": lambda: [
                (truncated[i] * truncated[j]).sum() for i in range(tasks) for j in range(i + 1)
            ],
        },
        rounds,
    )
    pairs = tasks * (tasks - 1) / 2
    apart = seconds["some pairs"] / len(sample) * pairs
    print(f"All pairs of {tasks} tasks at d = {WIDTH}: {seconds['together']:.2f} s")
    ratio = apart / seconds["together"]
    print(f"  pair by pair: {apart:.1f} s ({len(sample)} pairs timed), ratio {ratio:.1f}  (wanted 10)")
    ratio = seconds["truncated pairs"] / seconds["truncated together"]
    print(f"  inner products alone, truncated covariances given: one product is {ratio:.1f} times faster than pairs")


def _kept(C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(C)
    r = int(np.searchsorted(np.cumsum(values[::-1]) / values.sum(), 0.99)) + 1
    return values[-r:], vectors[:, -r:]


def peak_kilobytes() -> int:
    """Peak resident memory of this process alone (``ru_maxrss`` of a child starts at its parent's)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("no VmHWM in /proc/self/status: peak memory is measured on Linux only")
    return int(found.group(1))


def stream(path: Path) -> None:
    """Child process: one pass over the file through one reused buffer; prints peak memory above the interpreter."""
    before = peak_kilobytes()
    gram, buffer = Gram(WIDTH), np.empty((CHUNK, WIDTH), np.float32)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(memoryview(buffer).cast("B")):
            gram.update(buffer[: size // (4 * WIDTH)])
    seconds = time.perf_counter() - start
    print(f"{gram.rows} {(peak_kilobytes() - before) / 1024:.0f} {seconds:.1f}")


def streaming(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.f32"
        rng = np.random.default_rng(2)
        with path.open("wb") as file:
            for start in range(0, rows, CHUNK):
                realistic(rng, min(CHUNK, rows - start)).tofile(file)
        out = subprocess.run(
            [sys.executable, __file__, "--stream", str(path)], capture_output=True, text=True, check=True
        )
    found, megabytes, seconds = out.stdout.split()
    rate = rows * WIDTH * 4 / 1e9 / float(seconds)
    print(f"Streaming {int(found):,} x {WIDTH} from disk: {megabytes} MB above the interpreter  (wanted under 200), "
          f"{seconds} s, {rate:.2f} GB/s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the rows: does it run?")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream(options.stream)
        return
    share = 10 if options.small else 1
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, numpy {np.__version__}")
    gram_and_score(100_000 // share, 3 if options.small else 5)
    all_pairs(50 // (5 if options.small else 1), 1 if options.small else 5)
    streaming(1_000_000 // share)


if __name__ == "__main__":
    main()
