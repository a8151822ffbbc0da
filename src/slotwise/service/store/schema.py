"""The database of the store: its tables by version, and how it is made, checked and migrated.

A file that is damaged, newer or no store is refused and left unchanged.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path
from uuid import uuid4

from slotwise.core.errors import InputError, SlotwiseError

APPLICATION = 0x736C7773
"""The application_id that marks a database as a store: "slws" in ASCII."""

CHECKED_BYTES = 256 << 20
"""Up to this size all pages are checked when a store is opened, in 0.2 s if they are cached."""

LOG_BYTES = 64 << 20
"""The size to which the write-ahead log is cut after it was larger."""

# Columns of bytes that may be large hold the bytes, or the name of a file in `blobs`, a string.
VERSIONS = (
    """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- Numbers of removed jobs are not given again.
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    spec,
    environ TEXT,
    folder NOT NULL,
    pool TEXT NOT NULL,
    priority TEXT NOT NULL,
    weight REAL NOT NULL,
    deadline REAL,
    user TEXT,
    after TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    submitted REAL NOT NULL,
    begun REAL,
    ended REAL,
    state TEXT NOT NULL,
    reason NOT NULL,
    code INTEGER,
    result,
    held INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    restart INTEGER NOT NULL,
    stream TEXT,
    closed INTEGER NOT NULL,
    changes TEXT NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_end ON jobs (ended) WHERE ended IS NOT NULL;
CREATE INDEX jobs_by_environ ON jobs (environ) WHERE environ IS NOT NULL;
CREATE UNIQUE INDEX jobs_by_stream ON jobs (stream) WHERE stream IS NOT NULL;
CREATE TABLE names (base TEXT PRIMARY KEY, last TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (key TEXT PRIMARY KEY, ids TEXT NOT NULL, job INTEGER NOT NULL);
CREATE INDEX keys_by_job ON keys (job);
CREATE TABLE environs (hash TEXT PRIMARY KEY, variables TEXT NOT NULL);
CREATE TABLE calls (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    parts,
    inputs TEXT NOT NULL,
    state TEXT NOT NULL,
    is_value INTEGER,
    value,
    printed NOT NULL,
    reason NOT NULL,
    ended REAL,
    PRIMARY KEY (job, number)
);
CREATE TABLE tasks (
    job INTEGER NOT NULL,
    task INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    code INTEGER,
    begun REAL,
    ended REAL,
    reason NOT NULL,
    PRIMARY KEY (job, task)
) WITHOUT ROWID;
CREATE TABLE blobs (name TEXT PRIMARY KEY, job INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX blobs_by_job ON blobs (job);
CREATE TABLE notes (id INTEGER PRIMARY KEY, at REAL NOT NULL, text NOT NULL);
""",
    """
ALTER TABLE jobs ADD COLUMN client TEXT;
""",
    """
ALTER TABLE jobs ADD COLUMN account TEXT;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    user TEXT NOT NULL,
    hash BLOB NOT NULL,
    created REAL NOT NULL,
    expires REAL,
    used REAL,
    revoked REAL
) WITHOUT ROWID;
CREATE TABLE tasks_of_phases (
    job INTEGER NOT NULL,
    phase TEXT NOT NULL,
    task INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    code INTEGER,
    begun REAL,
    ended REAL,
    reason NOT NULL,
    PRIMARY KEY (job, phase, task)
) WITHOUT ROWID;
INSERT INTO tasks_of_phases
    SELECT job, '', task, state, attempt, code, begun, ended, reason FROM tasks;
DROP TABLE tasks;
ALTER TABLE tasks_of_phases RENAME TO tasks;
""",
    """
ALTER TABLE calls ADD COLUMN begins INTEGER NOT NULL DEFAULT 0;
""",
)
"""The statements that lead from each version to the next; the first make version 1."""


class StoreError(SlotwiseError):
    """The store could not do what was asked, and is as it was before.

    `kind`: "full" (its files cannot be written), "locked", "damaged", "missing" (no such job),
    or "closed".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """The error of a database or of a file of the store, with the remedy."""
    if isinstance(error, OSError):
        text = f"{error.strerror or error}"
        return StoreError("full", f"{error.filename or path} cannot be written: {text}; {FREE}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            "locked", f"{path} is locked by another process; end that process, then try again"
        )
    if code in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    ):
        return StoreError("full", f"{path} cannot be written: {error}; {FREE}")
    return StoreError("damaged", f"{path} is damaged ({error}); {RESTORE}")


FREE = "free space on its disk, or let its owner write there, then try again"
RESTORE = "it is left as it is: restore a backup, or name another folder"


def connected(path: Path, how: str, busy_seconds: float) -> sqlite3.Connection:
    """A connection without implicit transactions, to be used by one thread at a time."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={how}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )


@contextmanager
def opening_errors(path: Path) -> Iterator[None]:
    """Convert errors of files and of the database to InputError."""
    try:
        yield
    except StoreError as error:
        raise InputError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise InputError(str(store_error(path, error))) from error
    except UnicodeDecodeError as error:  # Raised by Python for strings in the database.
        raise InputError(f"{path} is damaged (a string is not UTF-8); {RESTORE}") from error


def opened(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """The connection of the writer to a store, which is created or migrated if necessary.

    sqlite3.Error, OSError or InputError for what is not a sound store, which stays unchanged.
    A store of an earlier version is first copied to PATH.vN.
    """
    if path.exists():
        _check(path, busy_seconds)
    else:
        _create(path)
    database = connected(path, "rw", busy_seconds)
    try:
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found < len(VERSIONS):
            _copy(database, path.with_name(f"{path.name}.v{found}"))
            database.executescript(_script(found))
    except BaseException:
        database.close()
        raise
    return database


def synced(folder: Path) -> None:
    """Make the names of files in a folder durable. Raises OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _script(version: int) -> str:
    """The statements from a version to the present one; 0 is an empty database."""
    steps = "".join(VERSIONS[version:])
    return f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {len(VERSIONS)}; COMMIT"


def _create(path: Path) -> None:
    """Create a store under a temporary name: a kill never leaves a partial one."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        # SQLite would add its records to the new database.
        raise InputError(f"{path} is missing, but its log {log.name} is not; {RESTORE}")
    made = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL, 0o600))  # The log gets the same mode.
        with closing(connected(made, "rw", 0)) as database:
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_script(0))
        os.replace(made, path)
        synced(path.parent)
    finally:
        for end in "", "-wal", "-shm":
            made.with_name(made.name + end).unlink(missing_ok=True)


def _check(path: Path, busy_seconds: float) -> None:
    """InputError or sqlite3.Error unless the file is a store of a known version, and sound.

    It only reads. Of files larger than CHECKED_BYTES it does not check every page.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file; name another folder")
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise InputError(f"{path} is not a store, or is damaged; {RESTORE}")
    if int.from_bytes(header[68:72]) != APPLICATION:
        raise InputError(f"{path} is the database of another program; name another folder")
    with closing(connected(path, "ro", busy_seconds)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > len(VERSIONS):
            raise InputError(
                f"{path} has version {version}, and this slotwise reads up to {len(VERSIONS)};"
                " update it, or name another folder"
            )
        fault = "ok" if version > 0 else f"its version is {version}"
        if fault == "ok" and path.stat().st_size <= CHECKED_BYTES:
            (fault,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if fault != "ok":
            fault = " ".join(fault.split())
            raise InputError(f"{path} is damaged ({fault}); {RESTORE}")


def _copy(database: sqlite3.Connection, wanted: Path) -> None:
    """Write a copy of a database to a path, or with a number appended if that exists."""
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    place = next(path for path in chain([wanted], numbered) if not path.exists())
    partial = place.with_name(f".{place.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        database.execute("VACUUM INTO ?", (str(partial),))
        partial.chmod(0o600)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, place)
        synced(place.parent)
    finally:
        partial.unlink(missing_ok=True)
