"""The thread that writes to the store: what waits for it goes into one transaction."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from slotwise.service.store.blobs import LARGE_BYTES, Blobs
from slotwise.service.store.records import (
    COLUMNS,
    StoredCall,
    StoredJob,
    StoredTask,
    row_of,
    storable,
)
from slotwise.service.store.schema import StoreError, store_error

T = TypeVar("T")

SOON_SECONDS = 0.01
"""How long a change that may wait does so for another one, which takes a commit anyway."""


class StoreChange(NamedTuple):
    """A change that waits for the writer, and the future with what its action returns."""

    action: Callable[[StoreWork], Any]
    done: Future[Any]
    may_wait: bool = False


class StoreWork:
    """An open transaction, with the files that it makes and those that it no longer names."""

    def __init__(self, database: sqlite3.Connection, blobs: Blobs) -> None:
        self.made: list[str] = []
        self.dropped: list[str] = []
        self._database, self._blobs = database, blobs

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._database.execute(query, [*map(storable, values)]).fetchall()

    def execute(self, statement: str, *values: Any) -> int:
        """Change rows; the number of these."""
        return self._database.execute(statement, [*map(storable, values)]).rowcount

    def number_of(self, job: str) -> int:
        """The number of a job. StoreError if it is not in the store."""
        for (number,) in self.rows("SELECT number FROM jobs WHERE id = ?", job):
            return int(number)
        raise StoreError("missing", f"job {job!r} is not in the store")

    def keep(self, data: bytes | None, job: int) -> bytes | str | None:
        """What a row of a job holds for bytes: large ones go to a file."""
        if data is None or len(data) <= LARGE_BYTES:
            return data
        name = self._blobs.write(data)
        self.made.append(name)
        self.execute("INSERT INTO blobs VALUES (?, ?)", name, job)
        return name

    def drop(self, value: bytes | str | None) -> None:
        """Remove the file of a value that no row holds any more, after the commit."""
        if isinstance(value, str):
            self.execute("DELETE FROM blobs WHERE name = ?", value)
            self.dropped.append(value)

    def insert(self, record: StoredJob | StoredCall | StoredTask, job: int) -> bool:
        """Add the row of a record of the job with this number; whether that changed a row."""
        row = row_of(record, lambda data: self.keep(data, job))
        if not isinstance(record, StoredJob):
            row[0] = job
        return self.execute(_INSERT[type(record)], *row) > 0

    def remove(self, job: int) -> None:
        """Remove a job with all that belongs to it."""
        names = self.rows("SELECT name FROM blobs WHERE job = ?", job)
        self.dropped += [name for (name,) in names]
        environs = self.rows("SELECT environ FROM jobs WHERE number = ?", job)
        for table in "calls", "tasks", "keys", "blobs":
            self.execute(f"DELETE FROM {table} WHERE job = ?", job)
        self.execute("DELETE FROM jobs WHERE number = ?", job)
        unused = "NOT EXISTS (SELECT 1 FROM jobs WHERE environ = hash)"
        self.execute(f"DELETE FROM environs WHERE hash = ? AND {unused}", *environs[0])


_INSERT = {
    kind: f"INSERT INTO {table} ({', '.join(COLUMNS[kind])})"
    f" VALUES ({', '.join('?' * len(COLUMNS[kind]))})"
    for kind, table in ((StoredJob, "jobs"), (StoredCall, "calls"), (StoredTask, "tasks"))
}
_LATER = ", ".join(
    f"{name} = excluded.{name}"
    for name in COLUMNS[StoredTask]
    if name not in ("job", "phase", "task")
)
_INSERT[StoredTask] += f" ON CONFLICT DO UPDATE SET {_LATER} WHERE tasks.state <> 'done'"


class StoreWriter:
    """Runs changes of a database, each with a future that is done when it is durable.

    If a transaction of several changes fails, each runs in one of its own, so that one that
    cannot be written does not affect the others.
    """

    def __init__(self, database: sqlite3.Connection, path: Path, blobs: Blobs) -> None:
        self._database, self._path, self._blobs = database, path, blobs
        self._queue: SimpleQueue[StoreChange | None] = SimpleQueue()
        self.commits = 0, 0.0  # The number of transactions, and their seconds.
        self._closing, self._is_closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="slotwise-store", daemon=True)
        self._thread.start()

    def do(self, action: Callable[[StoreWork], T], *, may_wait: bool = False) -> Future[T]:
        """Run an action in the next transaction; a future with what it returns.

        One that `may_wait` takes no transaction of its own unless no other change comes soon.
        """
        done = Future[T]()
        done.set_running_or_notify_cancel()  # It cannot be cancelled.
        with self._closing:
            if not self._is_closed:
                self._queue.put(StoreChange(action, done, may_wait))
                return done
        done.set_exception(StoreError("closed", f"{self._path} is closed"))
        return done

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (change := self._queue.get()) is not None:
            group: list[StoreChange] = []
            with suppress(Empty):
                while change is not None:
                    group.append(change)
                    waits = all(one.may_wait for one in group)
                    change = self._queue.get(waits, SOON_SECONDS)
            self._commit(group)
            if change is None:
                return

    def _commit(self, group: Sequence[StoreChange]) -> None:
        try:
            results = self._transaction(group)
        except Exception as error:
            fault = self._fault(error)
            if len(group) > 1 and getattr(fault, "kind", "") != "locked":
                for change in group:
                    self._commit([change])
            else:
                for change in group:
                    change.done.set_exception(fault)
        else:
            for change, result in zip(group, results, strict=True):
                change.done.set_result(result)

    def _transaction(self, group: Sequence[StoreChange]) -> list[Any]:
        work, began = StoreWork(self._database, self._blobs), time.perf_counter()
        try:
            self._database.execute("BEGIN IMMEDIATE")
            results = [change.action(work) for change in group]
            if work.made:
                self._blobs.sync()
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._blobs.remove(work.made)
            raise
        count, seconds = self.commits
        self.commits = count + 1, seconds + time.perf_counter() - began
        self._blobs.remove(work.dropped)
        return results

    def _fault(self, error: Exception) -> Exception:
        """A StoreError for what the disk or another process does; other errors are bugs."""
        is_bug = isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError)
        if isinstance(error, sqlite3.DatabaseError | OSError) and not is_bug:
            return store_error(self._path, error)
        return error
