"""What the service has accepted and what has ended: a SQLite database in its folder.

One thread writes. All changes that wait for it go into one transaction, so that many
submissions cost about one flush of the disk. A change is durable when its future is done.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from slotwise.core.errors import InputError
from slotwise.jobs.work_folder import FileLock, HeldError
from slotwise.service.store.blobs import Blobs
from slotwise.service.store.records import (
    CallState,
    Record,
    StoredCall,
    StoredJob,
    StoredTask,
    columns_of,
    held,
    record_of,
    storable,
    text_of,
)
from slotwise.service.store.schema import (
    RESTORE,
    StoreError,
    connected,
    opened,
    opening_errors,
    store_error,
)
from slotwise.service.store.writer import StoreWork, StoreWriter
from slotwise.sessions.intake import Names

BUSY_SECONDS = 5.0
"""How long a transaction waits for another process that has locked the database."""


PRUNED_JOBS, PRUNED_ROWS = 500, 10_000
"""The most jobs, and about the most calls and tasks, that one step of `prune` removes."""

SORTS = ("number", "begun", "ended", "pool", "user")
"""The columns by which jobs can be listed."""

CHANGEABLE = frozenset(
    {"pool", "priority", "weight", "deadline", "held", "restarts", "reason", "tasks"}
)
"""The fields that `change` can set."""


class Store:
    """The store in a folder, which one process uses at a time. All methods are thread-safe.

    A method that changes something returns a future. It is done when the change is durable, or
    has a StoreError, after which nothing has changed and later changes may succeed. It cannot
    be cancelled. Its callbacks run in the writer's thread, and must not wait for other changes.
    Files with large values are written by that thread, too.

    Opening reads the stated names of all jobs, also of those that were removed, and unless the
    database is large it checks all pages.
    InputError if the folder is in use, or its database is damaged, newer or no store.
    """

    def __init__(self, folder: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = folder / "store.db"
        self._reading, self._numbering = threading.Lock(), threading.Lock()
        self._is_closed = False
        with opening_errors(self.path), ExitStack() as opening:
            opening.callback(_lock(folder).release)
            database = opened(self.path, busy_seconds)
            opening.callback(database.close)
            self._reader = connected(self.path, "ro", busy_seconds)
            opening.callback(self._close_reader)
            self._blobs = Blobs(folder / "blobs")
            self._blobs.sweep({name for (name,) in self._rows("SELECT name FROM blobs")})
            names = self._rows("SELECT base, last FROM names")
            self._names = Names({base: int(last) for base, last in names})
            last = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")
            self._number: int = last[0][0] if last else 0
            self._writer = StoreWriter(database, self.path, self._blobs)
            opening.callback(self._writer.close)
            self._closing = opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, then close the database and release the folder."""
        self._closing.close()

    def _close_reader(self) -> None:
        with self._reading:
            self._is_closed = True
            self._reader.close()

    # Identity and submission.

    def new_id(self, stated: str | None = None) -> tuple[int, str]:
        """The next number, and an id that no job had: the stated one, or that with a number.

        Without a stated one it is the number itself. The numbers so far count as used ids.
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

    def give_back(self, numbers: Collection[int], ids: Sequence[str] = ()) -> None:
        """Give the last of these numbers and ids again, whose jobs are not added."""
        with self._numbering:
            for id in reversed(ids):
                self._names.give_back(id)
            while self._number in numbers:
                self._number -= 1

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
        if environ is not None:
            variables, hashed = _hashed(environ)
            jobs = [replace(job, environ=hashed) for job in jobs]

        def action(work: StoreWork) -> tuple[str, ...]:
            if key is not None and (known := _ids(work.rows(_OF_KEY, key))):
                return known
            if environ is not None:
                work.execute("INSERT OR IGNORE INTO environs VALUES (?, ?)", hashed, variables)
            ids = tuple(self._added(work, job) for job in jobs)
            if key is not None:
                row = (key, json.dumps(ids), jobs[-1].number)
                work.execute("INSERT INTO keys VALUES (?, ?, ?)", *row)
            return ids

        return self._writer.do(action)

    def _added(self, work: StoreWork, job: StoredJob) -> str:
        if job.stream is not None:
            for (known,) in work.rows("SELECT id FROM jobs WHERE stream = ?", job.stream):
                return str(known)
        work.insert(job, job.number)
        if job.id != str(job.number):
            base, last = self._names.last(job.id)
            # As a string, because the number in a name may have any number of digits.
            work.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", base, str(last))
        return job.id

    def add_calls(
        self,
        calls: Mapping[str, Sequence[StoredCall]],
        opened: Sequence[StoredJob] = (),
        closed: Sequence[str] = (),
    ) -> Future[None]:
        """Open streams, add calls to streams by their jobs, and close some: all or none.

        What is open, known or closed already changes nothing.
        """

        def action(work: StoreWork) -> None:
            for job in opened:
                self._added(work, job)
            known = "SELECT 1 FROM calls WHERE job = ? AND number = ?"
            for name, added in calls.items():
                number = work.number_of(name)
                for call in added:
                    if not work.rows(known, number, call.number):
                        work.insert(call, number)
            for name in closed:
                work.execute("UPDATE jobs SET closed = 1 WHERE id = ?", name)

        return self._writer.do(action)

    # Changes. Their results say whether they changed something.

    def close_stream(self, job: str) -> Future[bool]:
        """Note that no more calls follow in a stream."""
        return self._set(job, "NOT closed", {"closed": True})

    def begin(self, job: str, at: float, *, may_wait: bool = False) -> Future[bool]:
        """Note when the first task of a job began. If that `may_wait`, as in `begin_calls`."""
        return self._set(job, "begun IS NULL", {"begun": at}, may_wait=may_wait)

    def change(self, job: str, **values: Any) -> Future[bool]:
        """Set fields of an open job."""
        assert CHANGEABLE.issuperset(values), f"{values.keys() - CHANGEABLE} cannot be changed"
        return self._set(job, "state = 'open'", values)

    def note_change(self, job: str, name: str) -> Future[bool]:
        """Add one to the `changes` of an open job; those that others add meanwhile stay."""

        def action(work: StoreWork) -> bool:
            query = "SELECT changes FROM jobs WHERE number = ? AND state = 'open'"
            rows = work.rows(query, number := work.number_of(job))
            for (known,) in rows:
                changes = json.dumps({**json.loads(known), name: True})
                work.execute("UPDATE jobs SET changes = ? WHERE number = ?", changes, number)
            return bool(rows)

        return self._writer.do(action)

    def end(
        self,
        job: str,
        state: str,
        at: float,
        reason: str = "",
        code: int | None = None,
        result: bytes | None = None,
        *,
        may_wait: bool = False,
    ) -> Future[bool]:
        """End a job; only the first end counts. If that `may_wait`, as in `begin_calls`."""
        values = {"state": state, "ended": at, "reason": reason, "code": code, "result": result}
        return self._set(job, "state = 'open'", values, may_wait=may_wait)

    def end_task(self, task: StoredTask, *, may_wait: bool = False) -> Future[bool]:
        """Note the end of an attempt of a task, in place of an earlier one.

        Once the task is done, later ends do nothing. Attempts may be numbered from the start
        again, as after a restart.
        """

        def action(work: StoreWork) -> bool:
            return work.insert(task, work.number_of(task.job))

        return self._writer.do(action, may_wait=may_wait)

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
            query = "SELECT parts FROM calls WHERE job = ? AND number = ? AND state = 'open'"
            rows = work.rows(query, *place)
            for (parts,) in rows:
                work.drop(parts)
                work.execute(
                    "UPDATE calls SET parts = NULL, state = ?, is_value = ?, value = ?,"
                    " printed = ?, reason = ?, ended = ? WHERE job = ? AND number = ?",
                    *(state, is_value, work.keep(packed, place[0]), printed, reason, at),
                    *place,
                )
            return bool(rows)

        return self._writer.do(action)

    def begin_calls(
        self, calls: Callable[[], Collection[tuple[str, int]]], *, may_wait: bool = False
    ) -> Future[None]:
        """Count that open calls, by job and number, begin in a server.

        They are asked for in the transaction. What `may_wait` is stored with the next change,
        or after `SOON_SECONDS`.
        """
        return self._count_begins(calls, 1, may_wait=may_wait)

    def stop_calls(self, calls: Collection[tuple[str, int]]) -> Future[None]:
        """Undo that these calls have begun: the server stops in order, and they run again."""
        return self._count_begins(lambda: calls, -1, may_wait=False)

    def _count_begins(
        self, calls: Callable[[], Collection[tuple[str, int]]], by: int, *, may_wait: bool
    ) -> Future[None]:
        of_job = "job = (SELECT number FROM jobs WHERE id = ?) AND number = ?"
        update = f"UPDATE calls SET begins = begins + ? WHERE {of_job} AND state = 'open'"

        def action(work: StoreWork) -> None:
            for job, number in calls():
                work.execute(update, by, job, number)

        return self._writer.do(action, may_wait=may_wait)

    # Tokens, which `tokens.py` makes and checks.

    def add_token(
        self, id: str, user: str, hash: bytes, created: float, expires: float | None
    ) -> Future[None]:
        """Add a token of a user, by its hash."""

        def action(work: StoreWork) -> None:
            row = (id, user, hash, created, expires)
            work.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, NULL, NULL)", *row)

        return self._writer.do(action)

    def note_token(
        self, id: str, *, used: float | None = None, revoked: float | None = None
    ) -> Future[None]:
        """Note when a token was used, or revoked; the first time counts for the latter."""

        def action(work: StoreWork) -> None:
            values = "used = coalesce(?, used), revoked = coalesce(revoked, ?)"
            work.execute(f"UPDATE tokens SET {values} WHERE id = ?", used, revoked, id)

        return self._writer.do(action)

    def tokens(self) -> list[tuple[Any, ...]]:
        """The rows of all tokens, by the time of their creation."""
        return self._rows("SELECT * FROM tokens ORDER BY created, id")

    def note(self, at: float, text: str) -> Future[None]:
        """Add a line to the history of changes of the configuration."""

        def action(work: StoreWork) -> None:
            work.execute("INSERT INTO notes (at, text) VALUES (?, ?)", at, text)

        return self._writer.do(action)

    def forget(self, job: str) -> Future[bool]:
        """Remove a job that has ended, with its calls and results. Its id stays used."""

        def action(work: StoreWork) -> bool:
            query = "SELECT number FROM jobs WHERE id = ? AND state <> 'open'"
            rows = work.rows(query, job)
            for (number,) in rows:
                work.remove(number)
            return bool(rows)

        return self._writer.do(action)

    def prune(self, ended_before: float, most: int) -> list[str]:
        """Remove jobs that ended before an instant, the earliest first; the ids of these.

        It removes at most `most` jobs, in steps between which other changes are written, and
        returns when that is durable. StoreError if a step fails; earlier steps stay.
        """
        removed: list[str] = []
        is_over = False
        while not is_over and len(removed) < most:
            count = min(PRUNED_JOBS, most - len(removed))
            step = partial(_pruned, ended_before=ended_before, most=count)
            ids, is_over = self._writer.do(step).result()
            removed += ids
        return removed

    def _set(
        self, job: str, condition: str, values: Mapping[str, Any], *, may_wait: bool = False
    ) -> Future[bool]:
        """Set columns of a job for which a condition holds; whether it does."""

        def action(work: StoreWork) -> bool:
            number = work.number_of(job)
            query = f"SELECT 1 FROM jobs WHERE number = ? AND {condition}"
            if not work.rows(query, number):
                return False
            row = [held(k, v, lambda data: work.keep(data, number)) for k, v in values.items()]
            columns = ", ".join(f"{name} = ?" for name in values)
            work.execute(f"UPDATE jobs SET {columns} WHERE number = ?", *row, number)
            return True

        return self._writer.do(action, may_wait=may_wait)

    @property
    def commits(self) -> tuple[int, float]:
        """The number of transactions since it was opened, and the seconds that they took."""
        return self._writer.commits

    # Reading what is durable. StoreError if the database or a file is damaged.

    def open_jobs(self) -> list[StoredJob]:
        """The jobs that have not ended, by number."""
        return self._records(StoredJob, "FROM jobs WHERE state = 'open' ORDER BY number")

    def ids(self) -> list[str]:
        """The ids of all jobs."""
        return [text_of(id) for (id,) in self._rows("SELECT id FROM jobs")]

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
        array: int | None = None,
        search: str | None = None,
        sort: str = "number",
        offset: int = 0,
        oldest: bool = False,
    ) -> list[StoredJob]:
        """The last or first jobs, up to `limit`, by number, without large specs and results.

        array   only those of this array, which have ids such as `12_0`
        search  only jobs with this text in their ids
        sort    one of `SORTS`, then by number; a missing value is the smallest
        offset  how many jobs at that end are left out
        """
        assert sort in SORTS, "it is a column"
        stated = {
            "state IN (SELECT value FROM json_each(?))": states
            if states is None
            else json.dumps(states),
            "id IN (SELECT value FROM json_each(?))": ids if ids is None else json.dumps(ids),
            "id GLOB ?": None if array is None else f"{array}_[0-9]*",
            "pool = ?": pool,
            "user = ?": user,
            "number < ?": before,
            "instr(id, ?)": search or None,
        }
        given = {name: value for name, value in stated.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        order = "" if oldest else "DESC"
        by = ", ".join(f"{name} {order}" for name in dict.fromkeys([sort, "number"]))
        rows = self._rows(
            f"SELECT {columns_of(StoredJob)} FROM jobs {where} ORDER BY {by} LIMIT ? OFFSET ?",
            *(*given.values(), limit, offset),
        )
        found = [record_of(StoredJob, row, _small) for row in rows]
        return found if oldest else found[::-1]

    def counts(self) -> dict[str, int]:
        """The number of jobs in each state."""
        return dict(self._rows("SELECT state, count(*) FROM jobs GROUP BY state"))

    def open_users(self) -> list[tuple[str, str | None]]:
        """The ids of the jobs that have not ended, and their users."""
        rows = self._rows("SELECT id, user FROM jobs WHERE state = 'open'")
        return [(text_of(id), user and text_of(user)) for id, user in rows]

    def call_states(self, job: str) -> list[CallState]:
        """All calls of a stream by number, without their parts and values."""
        query = f"SELECT calls.number, calls.state, is_value {_OF_CALLS} ORDER BY calls.number"
        return [
            CallState(one, state, bool(value)) for one, state, value in self._rows(query, job)
        ]

    def call(self, job: str, number: int) -> StoredCall | None:
        """A call of a stream; None if it is not known."""
        where = f"{_OF_CALLS} AND calls.number = ?"
        return next(iter(self._records(StoredCall, where, job, number)), None)

    def tasks(self, job: str) -> list[StoredTask]:
        """The last ends of the tasks of a job, by task."""
        rest = (
            "FROM tasks JOIN jobs ON jobs.number = job WHERE jobs.id = ? ORDER BY phase, task"
        )
        return self._records(StoredTask, rest, job)

    def tasks_ended(self, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Of jobs by number, how many of their tasks are done, and how many have failed."""
        if not numbers:
            return {}
        rows = self._rows(
            "SELECT job, sum(state = 'done'), sum(state IN ('failed', 'lost')) FROM tasks"
            " WHERE job IN (SELECT value FROM json_each(?)) GROUP BY job",
            json.dumps(list(numbers)),
        )
        return {number: (done, failed) for number, done, failed in rows}

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

    def _records(self, kind: type[Record], rest: str, *values: Any) -> list[Record]:
        """The records of the rows of a query."""
        for _ in range(2):  # A file may be removed after its row was read.
            rows = self._rows(f"SELECT {columns_of(kind)} {rest}", *values)
            with suppress(FileNotFoundError):
                return [record_of(kind, row, self._blobs.read) for row in rows]
        raise StoreError("damaged", f"a file in {self._blobs.folder} is missing; {RESTORE}")

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading:
            if self._is_closed:
                raise StoreError("closed", f"{self.path} is closed")
            try:
                return self._reader.execute(query, [*map(storable, values)]).fetchall()
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error


_OF_KEY = "SELECT ids FROM keys WHERE key = ?"
_OF_CALLS = "FROM calls JOIN jobs ON jobs.number = calls.job WHERE jobs.id = ?"


def _hashed(environ: Mapping[str, str]) -> tuple[str, str]:
    """An environment as JSON, and the hash of that."""
    text = json.dumps(dict(environ), sort_keys=True)
    return text, sha256(text.encode()).hexdigest()


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


def _ids(rows: Sequence[tuple[Any, ...]]) -> tuple[str, ...] | None:
    return tuple(json.loads(rows[0][0])) if rows else None


def _small(value: bytes | str | None) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _pruned(work: StoreWork, ended_before: float, most: int) -> tuple[list[str], bool]:
    """One step of `prune`: the ids of the removed jobs, and whether no more are left.

    Of a job with many calls it removes some of these, and the next step continues.
    """
    query = "SELECT number, id FROM jobs WHERE ended < ? ORDER BY ended, number LIMIT ?"
    jobs = work.rows(query, ended_before, most)
    removed: list[str] = []
    room = PRUNED_ROWS
    for number, id in jobs:
        for table, key in ("calls", "number"), ("tasks", "task"):
            some = f"SELECT {key} FROM {table} WHERE job = ? LIMIT ?"
            delete = f"DELETE FROM {table} WHERE job = ? AND {key} IN ({some})"
            room -= work.execute(delete, number, number, room)
        if room <= 0:
            return removed, False
        work.remove(number)
        removed.append(id)
    return removed, len(jobs) < most
