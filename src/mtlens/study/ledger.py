"""Every training of a study with its settings and scores: one SQLite file, the truth that tables are made from.

A result enters once, under its identity, in one transaction with the others of its stack; a process killed at any
moment leaves whole stacks behind and never half of one. Several studies, also at the same time, may share a ledger.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mtlens.errors import FileError
from mtlens.study.identity import Fingerprint

FORMAT = 1
FLUSH_SECONDS = 1.0  # a killed process loses at most the stacks of one second
WAIT_MILLISECONDS = 30_000  # how long to wait for another process's transaction
SCHEMA = """
CREATE TABLE IF NOT EXISTS trainings (
  identity TEXT PRIMARY KEY, stack TEXT NOT NULL, settings TEXT NOT NULL, scores TEXT NOT NULL,
  seconds REAL NOT NULL, reason TEXT NOT NULL, finished REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Record:
    """One finished training: ``scores[split][task]``, higher is better, and whatever else it measured."""

    identity: Fingerprint
    settings: Mapping[str, Any]
    scores: Mapping[str, Any]
    seconds: float = 0.0
    reason: str = ""  # why it has no score, or ended early
    stack: Fingerprint = ""
    finished: float = field(default=0.0, compare=False)


class Ledger:
    """Records by identity. ``add`` collects whole stacks and writes them at least every ten seconds.

    >>> with Ledger(":memory:") as ledger:
    ...     ledger.add([Record("a1", {"seed": 0}, {"test": {"t": 0.5}})])
    ...     ledger.flush()
    ...     ledger.find(["a1", "b2"])["a1"].scores
    {'test': {'t': 0.5}}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._waiting: list[Record] = []
        self._last_write = time.monotonic()
        with self._explained("open"):
            self._base = sqlite3.connect(self.path, timeout=WAIT_MILLISECONDS / 1000, isolation_level=None)
            self._base.execute(f"PRAGMA busy_timeout={WAIT_MILLISECONDS}")
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")  # in WAL mode safe against a killed process
            self._base.executescript(SCHEMA)
            self._check()

    def _check(self) -> None:
        said = [row[0] for row in self._base.execute("PRAGMA quick_check(1)")]
        if said != ["ok"]:
            raise sqlite3.DatabaseError(said[0])
        self._base.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (str(FORMAT),))
        found = self._base.execute("SELECT value FROM facts WHERE key='format'").fetchone()[0]
        if found != str(FORMAT):
            raise FileError(
                f"the ledger {self.path} has format {found}; this mtlens reads format {FORMAT}. Use the version of "
                "mtlens that wrote it, or another --out."
            )

    def add(self, records: Iterable[Record]) -> None:
        """Take the records of one finished stack; they are on disk after the next flush."""
        now = time.time()
        stamped = [Record(r.identity, r.settings, r.scores, r.seconds, r.reason, r.stack, now) for r in records]
        self._waiting.extend(stamped)
        self.tick()

    def tick(self) -> None:
        """Write what is waiting if the last write is long enough ago."""
        if self._waiting and time.monotonic() - self._last_write >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting, in one transaction. A record that is there already stays as it is."""
        rows = [
            (r.identity, r.stack, json.dumps(dict(r.settings)), json.dumps(r.scores), r.seconds, r.reason, r.finished)
            for r in self._waiting
        ]
        with self._explained("write"):
            if rows:
                self._base.execute("BEGIN IMMEDIATE")
                try:
                    self._base.executemany("INSERT OR IGNORE INTO trainings VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                    self._base.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        self._base.execute("ROLLBACK")
                    raise
        self._waiting.clear()
        self._last_write = time.monotonic()

    def find(self, identities: Iterable[Fingerprint]) -> dict[Fingerprint, Record]:
        """The records among these identities that are finished (written or waiting)."""
        wanted = list(dict.fromkeys(identities))
        found: dict[Fingerprint, Record] = {}
        with self._explained("read"):
            for start in range(0, len(wanted), 500):
                part = wanted[start : start + 500]
                marks = ",".join("?" * len(part))
                query = f"SELECT * FROM trainings WHERE identity IN ({marks})"
                found.update((row[0], _record(row)) for row in self._base.execute(query, part))
        asked = set(wanted)
        found.update((r.identity, r) for r in self._waiting if r.identity in asked and r.identity not in found)
        return found

    def fact(self, key: str) -> Any:
        """A remembered by-product (a screening, say), or None."""
        with self._explained("read"):
            row = self._base.execute("SELECT value FROM facts WHERE key=?", (key,)).fetchone()
            return None if row is None else json.loads(row[0])

    def remember(self, key: str, value: Any) -> None:
        """Keep a by-product under a key that determines it."""
        with self._explained("write"):
            self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, json.dumps(value)))

    def __len__(self) -> int:
        with self._explained("read"):
            return int(self._base.execute("SELECT count(*) FROM trainings").fetchone()[0])

    def __iter__(self) -> Iterator[Record]:
        """Every written record, in order of identity."""
        with self._explained("read"):
            for row in self._base.execute("SELECT * FROM trainings ORDER BY identity"):
                yield _record(row)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._base.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, FileError):
            self._base.close()  # writing failed already: do not hide the reason behind a second failure
        else:
            self.close()

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, json.JSONDecodeError) as error:  # a page may be whole and its content not
            raise FileError(self._explain(doing, str(error))) from error

    def _explain(self, doing: str, said: str) -> str:
        where = f"cannot {doing} the ledger {self.path}"
        if "full" in said:
            return f"{where}: the disk is full. What was finished is kept; free some space and run the same command."
        if "locked" in said or "busy" in said:
            return f"{where}: another process has held it for {WAIT_MILLISECONDS // 1000} s. Wait for it, or end it."
        if "readonly" in said or "unable to open" in said:
            return f"{where} ({said}). Check that the folder exists and can be written, or use another --out."
        if "disk I/O" in said:
            return (
                f"{where}: the disk reports an error ({said}). What was finished before is kept; free or mend the disk."
            )
        return (
            f"{where}: the file is damaged ({said}), as after a copy that was cut short. Nothing was changed. "
            "Put a whole copy back, or move it away (with its -wal and -shm files) to measure everything again."
        )


def _record(row: tuple[Any, ...]) -> Record:
    identity, stack, settings, scores, seconds, reason, finished = row
    return Record(identity, json.loads(settings), json.loads(scores), seconds, reason, stack, finished)


class RunLock:
    """One process a run folder: held while the block runs, released by the system when a process is killed.

    The file says who holds it, so that a second process can say whom to wait for.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> RunLock:
        import fcntl

        try:
            self._file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write in {self.path.parent}: {error.strerror}. Use another --out.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise FileError(
                f"the run folder {self.path.parent} is in use by {holder}. Wait until it ends, or use another --out "
                "(two studies may share one --ledger)."
            ) from None
        with contextlib.suppress(OSError):  # a full disk cannot hold the name; the lock itself holds
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
