"""Everything that can end a study in the middle, done for real: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import sys
import numpy as np
from mtlens.study import Study
from mtlens.tasks import Task, TaskSet

rng = np.random.default_rng(0)
theta = rng.standard_normal(8)
shift = float(sys.argv[3])
tasks = []
for number in range(3):
    X = rng.standard_normal((120, 8)) + (shift if number == 0 else 0)
    tasks.append(Task(f"t{number}", X, X @ theta + rng.standard_normal(120)))
choices = dict(capacities=(4, 8), learning_rates=(0.01,), epochs=int(sys.argv[4]), splits=5, methods=("plain",))
choices["advice"] = False
result = Study(TaskSet(tasks), sys.argv[1], workers=int(sys.argv[2]), families=("trunk", "linear"), **choices).run()
print(result.verdicts["cost"])
"""


def start(out: Path, *, workers: int = 1, shift: float = 0.0, epochs: int = 12) -> subprocess.Popen[str]:
    """A study in a process of its own; no guard, because a user's script may have none."""
    arguments = [sys.executable, "-c", SCRIPT, str(out), str(workers), str(shift), str(epochs)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def rows(out: Path) -> dict[str, tuple[str, ...]]:
    """What the ledger says, without times."""
    base = sqlite3.connect(f"file:{out / 'ledger.sqlite'}?mode=ro", uri=True)
    try:
        return {
            row[0]: row[1:] for row in base.execute("SELECT identity, stack, settings, scores, reason FROM trainings")
        }
    finally:
        base.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    code, _, err = finish(start(out))
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def duration(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of a whole run on this machine: kills are to hit it anywhere, however fast it is."""
    began = time.monotonic()
    finish(start(tmp_path_factory.mktemp("timed") / "run"))
    return time.monotonic() - began


def killed_until_done(out: Path, kills: int, seed: int, seconds: float, *, workers: int) -> int:
    """Run and kill -9 at random moments; returns how many kills hit a living process."""
    rng = np.random.default_rng(seed)
    hit = 0
    for _ in range(kills):
        process = start(out, workers=workers)
        time.sleep(float(rng.uniform(0.1, 0.8)) * seconds)  # runs that go on are shorter
        hit += process.poll() is None
        process.kill()
        process.communicate()
    code, _, err = finish(start(out, workers=workers))
    assert code == 0, err
    return hit


def assert_same_tables(out: Path, undisturbed: Path) -> None:
    assert rows(out) == rows(undisturbed)
    assert (out / "transfer.csv").read_text() == (undisturbed / "transfer.csv").read_text()


@pytest.mark.medium
def test_killed_five_times(undisturbed: Path, duration: float, tmp_path: Path) -> None:
    hit = killed_until_done(tmp_path / "run", 5, 0, duration, workers=2)
    assert hit >= 1
    assert_same_tables(tmp_path / "run", undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_forty_times(undisturbed: Path, duration: float, tmp_path: Path) -> None:
    """Ten studies, each killed four times, at moments spread over a whole run."""
    hit = 0
    for number in range(10):
        hit += killed_until_done(tmp_path / str(number), 4, number + 1, duration, workers=1 + number % 2)
        assert_same_tables(tmp_path / str(number), undisturbed)
    assert hit >= 20, f"{hit} of 40 kills hit a run of {duration:.1f} s"


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to find the workers")
def test_a_killed_worker_is_replaced(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(out, workers=2)
    killed = 0
    until = time.monotonic() + 60
    while killed < 2 and process.poll() is None and time.monotonic() < until:
        for worker in children(process.pid)[:1]:
            time.sleep(0.1)
            try:
                os.kill(worker, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    code, _, err = finish(process)
    assert code == 0, err
    assert killed >= 1
    assert_same_tables(out, undisturbed)


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to find the workers")
def test_workers_end_with_a_killed_study(tmp_path: Path) -> None:
    process = start(tmp_path / "run", workers=2, epochs=400)
    until = time.monotonic() + 60
    while not (workers := children(process.pid)) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert workers
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.medium
def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    first = start(tmp_path / "run", epochs=25)
    until = time.monotonic() + 60
    while not (tmp_path / "run" / "ledger.sqlite").exists() and time.monotonic() < until:
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # it must not end before the second has started
    code, _, err = finish(start(tmp_path / "run", epochs=25))
    first.send_signal(signal.SIGCONT)
    assert finish(first)[0] == 0
    assert code != 0 and f"in use by process {first.pid}" in err


@pytest.mark.medium
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupting_ends_with_partial_verdicts(tmp_path: Path, workers: int) -> None:
    out = tmp_path / "run"
    process = start(out, epochs=200, workers=workers)
    until = time.monotonic() + 60
    while time.monotonic() < until and not ((out / "ledger.sqlite").exists() and len(rows_or_none(out)) > 0):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 0, err
    import json

    verdicts = json.loads((out / "verdicts.json").read_text())
    assert verdicts["complete"] is False and len(verdicts["transfer"]) == 9


def rows_or_none(out: Path) -> dict[str, tuple[str, ...]]:
    try:
        return rows(out)
    except sqlite3.Error:
        return {}


@pytest.mark.medium
def test_data_that_changed_between_runs(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    code, _, err = finish(start(out, shift=1.0))
    assert code != 0
    assert "the data of 1 tasks ('t0') are not those this run began with" in err and "Use a new --out" in err
    assert rows(out) == rows(undisturbed)


@pytest.mark.medium
def test_a_truncated_ledger_stops_a_study(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    ledger = out / "ledger.sqlite"
    ledger.write_bytes(ledger.read_bytes()[: ledger.stat().st_size // 2])
    code, _, err = finish(start(out))
    assert code != 0 and "the file is damaged" in err and "Put a whole copy back" in err


@pytest.mark.medium
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_in_one_sentence(undisturbed: Path, tmp_path: Path) -> None:
    """A file-size limit makes every further write of the ledger fail, as a full disk does."""
    out = tmp_path / "run"
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
    arguments = [sys.executable, "-c", limited + SCRIPT, str(out), "1", "0.0", "12"]
    code, _, err = finish(subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert code != 0
    assert "FileError" in err and ("What was finished" in err or "ledger keeps" in err), err
    code, _, err = finish(start(out))  # room again: the same command goes on
    assert code == 0, err
    assert_same_tables(out, undisturbed)
