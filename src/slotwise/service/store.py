"""What the service has accepted and what has ended: a SQLite database in its folder.

One thread writes. All changes that wait for it go into one transaction, so that many
submissions cost about one flush of the disk. A change is durable when its future is done.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self, TypeVar

from slotwise.core.errors import InputError
from slotwise.jobs.work_folder import FileLock, HeldError
from slotwise.service.blobs import LARGE_BYTES, Blobs
from slotwise.service.records import (
    Record,
    StoredCall,
    StoredJob,
    StoredTask,
    held,
    names_of,
    record_of,
    row_of,
    storable,
    text_of,
)
from slotwise.service.schema import (
    RESTORE,
    StoreError,
    connected,
    opened,
    opening_errors,
    store_error,
)
from slotwise.sessions.intake import Names

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long a transaction waits for another process that has locked the database."""

PAGE = 100
"""Calls that are read at a time."""

PRUNED_JOBS, PRUNED_ROWS = 500, 10_000
"""The most jobs, and calls and tasks, that one step of `prune` removes."""

CHANGEABLE = frozenset(
    {"pool", "priority", "weight", "deadline", "held", "restarts", "reason", "tasks", "changes"}
)
"""The fields that `change` can set."""


class StoreChange(NamedTuple):
    """A change that waits for the writer, and the future with what its action returns."""

    action: Callable[[StoreWork], Any]
    done: Future[Any]


class StoreWork:
    """An open transaction, with the files that it makes and those that it no longer names."""

    def __init__(self, database: sqlite3.Connection, blobs: Blobs) -> None:
        self.execute, self.insert_all = database.execute, database.executemany
        self.made: list[str] = []
        self.dropped: list[str] = []
        self._blobs = blobs

    def number_of(self, job: str) -> int:
        """The number of a job. StoreError if it is not in the store."""
        row = self.execute("SELECT number FROM jobs WHERE id = ?", (job,)).fetchone()
        if row is None:
            raise StoreError("missing", f"job {job!r} is not in the store")
        return int(row[0])

    def keep(self, data: bytes | None, job: int) -> bytes | str | None:
        """What a row of a job holds for bytes: large ones go to a file."""
        if data is None or len(data) <= LARGE_BYTES:
            return data
        name = self._blobs.write(data)
        self.made.append(name)
        self.execute("INSERT INTO blobs VALUES (?, ?)", (name, job))
        return name

    def drop(self, value: bytes | str | None) -> None:
        """Remove the file of a value that no row holds any more, after the commit."""
        if isinstance(value, str):
            self.execute("DELETE FROM blobs WHERE name = ?", (value,))
            self.dropped.append(value)

    def insert(self, record: StoredJob | StoredCall | StoredTask, job: int) -> None:
        """Add the row of a record of the job with this number."""
        row = row_of(record, lambda data: self.keep(data, job))
        if not isinstance(record, StoredJob):
            row[0] = job
        self.execute(_INSERT[type(record)], row)

    def remove(self, job: int) -> None:
        """Remove a job with all that belongs to it."""
        names = self.execute("SELECT name FROM blobs WHERE job = ?", (job,)).fetchall()
        self.dropped += [name for (name,) in names]
        (environ,) = self.execute(
            "SELECT environ FROM jobs WHERE number = ?", (job,)
        ).fetchone()
        for table in "calls", "tasks", "keys", "blobs":
            self.execute(f"DELETE FROM {table} WHERE job = ?", (job,))
        self.execute("DELETE FROM jobs WHERE number = ?", (job,))
        if environ is not None:
            self.execute(
                "DELETE FROM environs WHERE hash = ?1"
                " AND NOT EXISTS (SELECT 1 FROM jobs WHERE environ = ?1)",
                (environ,),
            )


_COLUMNS = {kind: ", ".join(names_of(kind)) for kind in (StoredJob, StoredCall, StoredTask)}
_INSERT = {
    kind: f"INSERT INTO {table} ({_COLUMNS[kind]})"
    f" VALUES ({', '.join('?' * len(names_of(kind)))})"
    for kind, table in ((StoredJob, "jobs"), (StoredCall, "calls"), (StoredTask, "tasks"))
}
_INSERT[StoredTask] += (
    " ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in names_of(StoredTask)[2:])
    + " WHERE excluded.attempt > attempt AND state <> 'done'"
)


class Store:
    """The store in a folder, which only one process uses at a time. All methods are thread-safe.

    A method that changes something returns a future. It is done when the change is durable, or
    has a StoreError, after which nothing has changed and later changes may succeed. Its
    callbacks run in the writer's thread. It cannot be cancelled.

    Opening reads the names of all jobs and, unless the database is large, checks all pages.
    InputError if the folder is in use, or its database is damaged, newer or no store.
    """

    def __init__(self, folder: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = folder / "store.db"
        self._lock = _lock(folder)
        self._database: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading, self._numbering = threading.Lock(), threading.Lock()
        self._queue: SimpleQueue[StoreChange | None] = SimpleQueue()
        self._is_closed = False
        try:
            with opening_errors(self.path):
                self._database = opened(self.path, busy_seconds)
                self._reader = connected(self.path, "ro", busy_seconds)
                self._blobs = Blobs(folder / "blobs")
                self._blobs.sweep([name for (name,) in self._rows("SELECT name FROM blobs")])
                names = self._rows("SELECT base, last FROM names")
                self._names = Names({text_of(base): int(last) for base, last in names})
                last = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")
                self._number: int = last[0][0] if last else 0
        except StoreError as error:
            self._leave()
            raise InputError(str(error)) from error
        except BaseException:
            self._leave()
            raise
        self._writer = threading.Thread(target=self._write, name="slotwise-store", daemon=True)
        self._writer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, then close the database and release the folder."""
        with self._numbering:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.put(None)
        self._writer.join()
        self._leave()

    # Identity and submission.

    def new_id(self, stated: str | None = None) -> tuple[int, str]:
        """The next number, and an id that no job had: the stated one, or with a number appended.

        Without a stated one it is the number. The numbers given so far count as used ids.
        """
        with self._numbering:
            self._number += 1
            if stated is None:
                while self._is_used(str(self._number)):
                    self._number += 1
                return self._number, str(self._number)
            is_number = stated.isdecimal() and stated == str(int(stated))
            if is_number and int(stated) < self._number and not self._is_used(stated):
                self._names.unused(stated)
            return self._number, self._names.unused(stated)

    def _is_used(self, name: str) -> bool:
        return self._names.last(name)[1] > 0

    def add(
        self,
        jobs: Sequence[StoredJob],
        key: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Future[tuple[str, ...]]:
        """Add jobs with one environment, all or none; the ids of the jobs.

        If the key was used before, these are the ids of that submission, and nothing is added.
        So is a job whose stream exists: its id is that of the existing one.
        """
        variables = None if environ is None else json.dumps(dict(environ), sort_keys=True)
        hashed = None if variables is None else environment_hash(environ or {})

        def action(work: StoreWork) -> tuple[str, ...]:
            if key is not None and (known := _ids(work.execute(_OF_KEY, (key,)).fetchall())):
                return known
            if hashed is not None:
                row = (hashed, variables)
                work.execute("INSERT OR IGNORE INTO environs VALUES (?, ?)", row)
            ids = tuple(self._added(work, replace(job, environ=hashed)) for job in jobs)
            if key is not None and jobs:
                row = (key, json.dumps(ids), jobs[-1].number)
                work.execute("INSERT INTO keys VALUES (?, ?, ?)", row)
            return ids

        return self._do(action)

    def _added(self, work: StoreWork, job: StoredJob) -> str:
        if job.stream is not None:
            known = "SELECT id FROM jobs WHERE stream = ?"
            if row := work.execute(known, (job.stream,)).fetchone():
                return str(row[0])
        work.insert(job, job.number)
        if job.id != str(job.number):
            base, last = self._names.last(job.id)
            # As a string, because the number in a name may have any number of digits.
            work.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", (base, str(last)))
        return job.id

    def add_calls(self, job: str, calls: Sequence[StoredCall]) -> Future[None]:
        """Add calls to a stream; those whose numbers it has already change nothing."""

        def action(work: StoreWork) -> None:
            number = work.number_of(job)
            known = "SELECT 1 FROM calls WHERE job = ? AND number = ?"
            for call in calls:
                if work.execute(known, (number, call.number)).fetchone() is None:
                    work.insert(call, number)

        return self._do(action)

    # Changes. Their results say whether they changed something.

    def close_stream(self, job: str) -> Future[bool]:
        """Note that no more calls follow in a stream."""
        return self._set(job, "NOT closed", {"closed": True})

    def begin(self, job: str, at: float) -> Future[bool]:
        """Note when the first task of a job began."""
        return self._set(job, "begun IS NULL", {"begun": at})

    def change(self, job: str, **values: Any) -> Future[bool]:
        """Set fields of an open job."""
        assert CHANGEABLE.issuperset(values), f"{values.keys() - CHANGEABLE} cannot be changed"
        return self._set(job, "state = 'open'", values)

    def end(
        self,
        job: str,
        state: str,
        at: float,
        reason: str = "",
        code: int | None = None,
        result: bytes | None = None,
    ) -> Future[bool]:
        """End a job; only the first end counts."""
        values = {"state": state, "ended": at, "reason": reason, "code": code, "result": result}
        return self._set(job, "state = 'open'", values)

    def end_task(self, task: StoredTask) -> Future[bool]:
        """Note the end of an attempt of a task; of a task that is not done, only the latest."""

        def action(work: StoreWork) -> bool:
            number, before = work.number_of(task.job), _changes(work)
            work.insert(task, number)
            return _changes(work) > before

        return self._do(action)

    def end_call(
        self,
        job: str,
        number: int,
        is_value: bool | None,
        packed: bytes | None,
        printed: str,
        at: float,
        *,
        state: str = "done",
        reason: str = "",
    ) -> Future[bool]:
        """End a call; only the first end counts. Its parts are removed.

        `is_value` and `packed` are None unless its state is `done`.
        """

        def action(work: StoreWork) -> bool:
            place = (work.number_of(job), number)
            rows = work.execute(
                "SELECT parts FROM calls WHERE job = ? AND number = ? AND state = 'open'", place
            ).fetchall()
            for (parts,) in rows:
                work.drop(parts)
                work.execute(
                    "UPDATE calls SET parts = NULL, state = ?, is_value = ?, value = ?,"
                    " printed = ?, reason = ?, ended = ? WHERE job = ? AND number = ?",
                    (
                        *(state, is_value, work.keep(packed, place[0])),
                        *(storable(printed), storable(reason), at, *place),
                    ),
                )
            return bool(rows)

        return self._do(action)

    def note(self, at: float, text: str) -> Future[None]:
        """Add a line to the history of changes of the configuration."""
        row = (at, storable(text))

        def action(work: StoreWork) -> None:
            work.execute("INSERT INTO notes (at, text) VALUES (?, ?)", row)

        return self._do(action)

    def forget(self, job: str) -> Future[bool]:
        """Remove a job that has ended, with its calls and results. Its id stays used."""

        def action(work: StoreWork) -> bool:
            query = "SELECT number FROM jobs WHERE id = ? AND state <> 'open'"
            rows = work.execute(query, (job,)).fetchall()
            for (number,) in rows:
                work.remove(number)
            return bool(rows)

        return self._do(action)

    def prune(self, ended_before: float, most: int) -> list[str]:
        """Remove jobs that ended before an instant, the earliest first; the ids of these.

        It removes at most `most` jobs, in steps between which other changes are written, and
        returns when that is durable. StoreError if a step fails; earlier steps stay.
        """
        removed: list[str] = []
        is_over = False
        while not is_over and len(removed) < most:
            count = min(PRUNED_JOBS, most - len(removed))
            ids, is_over = self._do(
                lambda work, n=count: _pruned(work, ended_before, n)
            ).result()
            removed += ids
        return removed

    def _set(self, job: str, condition: str, values: Mapping[str, Any]) -> Future[bool]:
        """Set columns of a job for which a condition holds; whether it does."""

        def action(work: StoreWork) -> bool:
            number = work.number_of(job)
            query = f"SELECT 1 FROM jobs WHERE number = ? AND {condition}"
            if work.execute(query, (number,)).fetchone() is None:
                return False
            row = [held(k, v, lambda data: work.keep(data, number)) for k, v in values.items()]
            columns = ", ".join(f"{name} = ?" for name in values)
            work.execute(f"UPDATE jobs SET {columns} WHERE number = ?", (*row, number))
            return True

        return self._do(action)

    # Reading what is durable. StoreError if the database or a file is damaged.

    def open_jobs(self) -> list[StoredJob]:
        """The jobs that have not ended, by number."""
        return self._records(StoredJob, "FROM jobs WHERE state = 'open' ORDER BY number")

    def job(self, id: str) -> StoredJob | None:
        """A job, or None."""
        return next(iter(self._records(StoredJob, "FROM jobs WHERE id = ?", id)), None)

    def stream(self, key: str) -> StoredJob | None:
        """The job that is the stream of calls with this key, or None."""
        return next(iter(self._records(StoredJob, "FROM jobs WHERE stream = ?", key)), None)

    def is_closed(self, job: str) -> bool:
        """Whether no more calls follow in a stream."""
        return bool(self._rows("SELECT 1 FROM jobs WHERE id = ? AND closed", job))

    def jobs(
        self,
        *,
        states: Sequence[str] | None = None,
        pool: str | None = None,
        user: str | None = None,
        limit: int = 100,
        before: int | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[StoredJob]:
        """The last jobs, up to `limit`, by number. Large specs and results are left out."""
        stated = {
            "state IN (SELECT value FROM json_each(?))": states and json.dumps(states),
            "id IN (SELECT value FROM json_each(?))": ids if ids is None else json.dumps(ids),
            "pool = ?": pool,
            "user = ?": user,
            "number < ?": before,
        }
        given = {name: value for name, value in stated.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        rows = self._rows(
            f"SELECT {_COLUMNS[StoredJob]} FROM jobs {where} ORDER BY number DESC LIMIT ?",
            *(*given.values(), limit),
        )
        return [record_of(StoredJob, row, _small) for row in reversed(rows)]

    def counts(self) -> dict[str, int]:
        """The number of jobs in each state."""
        return dict(self._rows("SELECT state, count(*) FROM jobs GROUP BY state"))

    def calls(self, job: str, *, only_open: bool = False) -> Iterator[StoredCall]:
        """The calls of a stream by number, each as it is when it is read."""
        state = "AND calls.state = 'open'" if only_open else ""
        rest = f"{_OF_CALLS} AND calls.number {{}} ? {state} ORDER BY calls.number LIMIT {PAGE}"
        last = -1
        while rows := self._rows(f"SELECT {_CALL_COLUMNS} {rest.format('>')}", job, last):
            for row in rows:
                last = row[1]
                try:
                    yield record_of(StoredCall, row, self._blobs.read)
                except FileNotFoundError:  # The call may have ended since the page was read.
                    one = rest.format("=")
                    yield from self._records(StoredCall, one, job, last, columns=_CALL_COLUMNS)

    def result(self, job: str, number: int) -> tuple[bool, bytes] | None:
        """Whether a call that is done has a value, and its value or error; or None."""
        where = f"{_OF_CALLS} AND calls.number = ? AND calls.state = 'done'"
        for call in self._records(StoredCall, where, job, number, columns=_CALL_COLUMNS):
            return bool(call.is_value), call.value or b""
        return None

    def tasks(self, job: str) -> list[StoredTask]:
        """The last ends of the tasks of a job, by task."""
        rest = "FROM tasks JOIN jobs ON jobs.number = job WHERE id = ? ORDER BY task"
        columns = ", ".join(["id", *(f"tasks.{name}" for name in names_of(StoredTask)[1:])])
        return self._records(StoredTask, rest, job, columns=columns)

    def ids_of(self, key: str) -> tuple[str, ...] | None:
        """The ids of the submission with this key, or None."""
        return _ids(self._rows(_OF_KEY, key))

    def environment(self, hashed: str) -> dict[str, str] | None:
        """The environment with this hash, or None."""
        rows = self._rows("SELECT variables FROM environs WHERE hash = ?", hashed)
        return json.loads(rows[0][0]) if rows else None

    def notes(self, limit: int = 100) -> list[tuple[float, str]]:
        """The last lines of the history of the configuration, the latest last."""
        rows = self._rows("SELECT at, text FROM notes ORDER BY id DESC LIMIT ?", limit)
        return [(at, text_of(text)) for at, text in reversed(rows)]

    def _records(
        self, kind: type[Record], rest: str, *values: Any, columns: str = ""
    ) -> list[Record]:
        """The records of the rows of a query."""
        query = f"SELECT {columns or _COLUMNS[kind]} {rest}"
        with suppress(FileNotFoundError):  # A file may be removed after its row was read.
            return [record_of(kind, r, self._blobs.read) for r in self._rows(query, *values)]
        try:
            return [record_of(kind, r, self._blobs.read) for r in self._rows(query, *values)]
        except FileNotFoundError as error:
            name = f"{self._blobs.folder} is damaged ({error.filename} is missing)"
            raise StoreError("damaged", f"{name}; {RESTORE}") from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading:
            if self._reader is None:
                raise StoreError("closed", f"{self.path} is closed")
            try:
                return self._reader.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error

    # The writer.

    def _do(self, action: Callable[[StoreWork], T]) -> Future[T]:
        done = Future[T]()
        done.set_running_or_notify_cancel()  # A change that was asked for happens.
        with self._numbering:
            if self._is_closed:
                done.set_exception(StoreError("closed", f"{self.path} is closed"))
            else:
                self._queue.put(StoreChange(action, done))
        return done

    def _write(self) -> None:
        while (change := self._queue.get()) is not None:
            group: list[StoreChange] = []
            with suppress(Empty):
                while change is not None:
                    group.append(change)
                    change = self._queue.get_nowait()
            self._commit(group)
            if change is None:
                return

    def _commit(self, group: Sequence[StoreChange]) -> None:
        """Write changes in one transaction. If that fails, each in one of its own."""
        try:
            results = self._transaction(group)
        except Exception as error:
            is_stored = isinstance(error, sqlite3.OperationalError | OSError)
            fault = store_error(self.path, error) if is_stored else error
            if len(group) == 1 or getattr(fault, "kind", "") == "locked":
                for change in group:
                    change.done.set_exception(fault)
            else:
                for change in group:
                    self._commit([change])
        else:
            for change, result in zip(group, results, strict=True):
                change.done.set_result(result)

    def _transaction(self, group: Sequence[StoreChange]) -> list[Any]:
        assert self._database is not None
        work = StoreWork(self._database, self._blobs)
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
        self._blobs.remove(work.dropped)
        return results

    def _leave(self) -> None:
        """Close the connections and release the folder."""
        with self._reading:
            for connection in self._reader, self._database:
                if connection is not None:
                    connection.close()
            self._reader = self._database = None
        self._lock.release()


_OF_KEY = "SELECT ids FROM keys WHERE key = ?"
_OF_CALLS = "FROM calls JOIN jobs ON jobs.number = calls.job WHERE jobs.id = ?"
_CALL_COLUMNS = ", ".join(["jobs.id", *(f"calls.{name}" for name in names_of(StoredCall)[1:])])


def environment_hash(environ: Mapping[str, str]) -> str:
    """The hash by which an environment is kept."""
    return sha256(json.dumps(dict(environ), sort_keys=True).encode()).hexdigest()


def _lock(folder: Path) -> FileLock:
    """Make the folder, for its owner only, and lock it."""
    with opening_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            return FileLock(folder / "lock", f"process {os.getpid()}")
        except HeldError as error:
            raise InputError(
                f"{folder} is in use by {error or 'another process'}; stop that server, or name"
                " another folder"
            ) from None


def _ids(rows: Sequence[tuple[str]] | Sequence[tuple[Any, ...]]) -> tuple[str, ...] | None:
    return tuple(json.loads(rows[0][0])) if rows else None


def _small(value: bytes | str | None) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _changes(work: StoreWork) -> int:
    return int(work.execute("SELECT total_changes()").fetchone()[0])


def _pruned(work: StoreWork, ended_before: float, most: int) -> tuple[list[str], bool]:
    """One step of `prune`: the ids of the removed jobs, and whether no more are left.

    Of a job with many calls it removes some of these, and the next step continues.
    """
    query = "SELECT number, id FROM jobs WHERE ended < ? ORDER BY ended, number LIMIT ?"
    jobs = work.execute(query, (ended_before, most)).fetchall()
    removed: list[str] = []
    room = PRUNED_ROWS
    for number, id in jobs:
        for table, key in ("calls", "number"), ("tasks", "task"):
            some = f"SELECT {key} FROM {table} WHERE job = ?1 LIMIT ?2"
            delete = f"DELETE FROM {table} WHERE job = ?1 AND {key} IN ({some})"
            room -= work.execute(delete, (number, room)).rowcount
        if room <= 0:
            return removed, False
        work.remove(number)
        removed.append(id)
    return removed, len(jobs) < most
