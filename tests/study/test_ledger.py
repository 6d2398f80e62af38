"""The ledger: nothing lost, nothing twice, and a clear word when a file or a disk fails."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mtlens.errors import FileError
from mtlens.study.ledger import Ledger, Record, RunLock


def records(count: int, stack: str = "s", value: float = 0.5) -> list[Record]:
    return [Record(f"{stack}{i}", {"i": i}, {"test": {"t": value}}, stack=stack) for i in range(count)]


def test_round_trip(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.add(records(1200))
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert len(ledger) == 1200
        found = ledger.find(["s0", "s1199", "nobody"])
        assert set(found) == {"s0", "s1199"} and found["s1199"] == records(1200)[-1]
        assert [r.identity for r in ledger] == sorted(r.identity for r in records(1200))


def test_a_record_stays_as_it_was_first(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.add(records(3, value=0.5))
        ledger.flush()
        ledger.add(records(3, value=0.9))
        ledger.flush()
        assert len(ledger) == 3 and ledger.find(["s0"])["s0"].scores["test"]["t"] == 0.5


def test_waiting_records_are_found_and_written_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(tmp_path / "l.sqlite") as ledger:
        ledger.add(records(1))
        assert "s0" in ledger.find(["s0"]) and len(ledger) == 0
        now = time.monotonic()
        monkeypatch.setattr("mtlens.study.ledger.time.monotonic", lambda: now + 10.0)
        ledger.tick()
        assert len(ledger) == 1


@pytest.mark.parametrize("size", [100, 5000])
def test_a_truncated_ledger_is_refused_and_left_alone(tmp_path: Path, size: int) -> None:
    path = tmp_path / "l.sqlite"
    with Ledger(path) as ledger:
        ledger.add(records(500))
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    with pytest.raises(FileError, match=r"damaged .*Put a whole copy back, or move it away"):
        Ledger(path)
    assert path.read_bytes() == whole[:size]


def test_random_bytes_are_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(FileError, match="damaged"):
        Ledger(path)


def test_a_ledger_of_another_format(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as base:
        base.execute("UPDATE facts SET value='99' WHERE key='format'")
    base.close()
    with pytest.raises(FileError, match="format 99; this mtlens reads format 1"):
        Ledger(path)


def test_damage_inside_a_whole_page_is_said(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with Ledger(path) as ledger:
        ledger.add([Record("a", {}, {"test": {"t": 0.5}})])
        ledger.remember("screening", [1])
    base = sqlite3.connect(path)
    base.execute("UPDATE trainings SET scores='{\"test'")
    base.execute("UPDATE facts SET value='[1' WHERE key='screening'")
    base.commit()
    base.close()
    with Ledger(path) as ledger:
        for reading in (lambda: ledger.find(["a"]), lambda: list(ledger), lambda: ledger.fact("screening")):
            with pytest.raises(FileError, match=r"the file is damaged .*Put a whole copy back"):
                reading()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Check that the folder exists"):
        Ledger(tmp_path / "nowhere" / "l.sqlite")


def test_a_full_disk_says_so_and_keeps_what_was_written(tmp_path: Path) -> None:
    """SQLite's own limit stands in for the disk: the error is the same SQLITE_FULL."""
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path)
    ledger.add(records(10, "first"))
    ledger.flush()
    pages = ledger._base.execute("PRAGMA page_count").fetchone()[0]
    ledger._base.execute(f"PRAGMA max_page_count={pages}")
    ledger.add(records(5000, "second"))
    with pytest.raises(FileError, match=r"the disk is full.*run the same command"):
        ledger.flush()
    ledger._base.close()
    with Ledger(path) as again:
        assert len(again) == 10 and not again.find(["second0"])


def test_two_processes_write_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    script = (
        "import sys; from mtlens.study.ledger import Ledger, Record\n"
        "ledger = Ledger(sys.argv[1])\n"
        "for n in range(40):\n"
        "    ledger.add([Record(f'{sys.argv[2]}{n}-{i}', {}, {}) for i in range(20)]); ledger.flush()\n"
        "ledger.add([Record('both', {}, {'by': sys.argv[2]})]); ledger.close()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    with Ledger(path) as ledger:
        assert len(ledger) == 2 * 800 + 1


def test_one_process_a_run_folder(tmp_path: Path) -> None:
    with (
        RunLock(tmp_path),
        pytest.raises(FileError, match=r"in use by process \d+, since .*use another --out"),
        RunLock(tmp_path),
    ):
        pass
    with RunLock(tmp_path):
        pass  # free again


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from mtlens.study.ledger import RunLock\n"
        "with RunLock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(FileError, match=f"in use by process {process.pid}"), RunLock(tmp_path):
            pass
        process.kill()
        process.wait()
    with RunLock(tmp_path):
        pass
