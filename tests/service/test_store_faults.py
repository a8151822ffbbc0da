"""The store when it is in use, damaged, of another version, full, locked, or killed."""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.test_store import calls_of
from slotwise.core.errors import InputError
from slotwise.service.store import schema
from slotwise.service.store.blobs import LARGE_BYTES
from slotwise.service.store.records import StoredCall, StoredJob
from slotwise.service.store.schema import APPLICATION, VERSIONS, StoreError
from slotwise.service.store.store import Store
from slotwise.service.store.writer import StoreWork

LARGE = b"large" * LARGE_BYTES


def added(store: Store, stated: str | None = None, spec: bytes = b"{}") -> Future[Any]:
    """The acknowledgement of a job with a new id."""
    number, id = store.new_id(stated)
    return store.add([StoredJob(number, id, "command", spec=spec)])


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder; SQLite may make an index of the log, which has no data."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in paths if path.suffix != ".db-shm"}


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The folder of a store with two pages of jobs at least."""
    with Store(tmp_path / "used") as store:
        for number in range(50):
            added(store, f"job {number}", bytes(1000)).result()
    return tmp_path / "used"


def test_two_servers_never_share_a_folder(used: Path) -> None:
    """The second one is refused, with the process of the first."""
    with (
        Store(used),
        pytest.raises(InputError, match=rf"in use by process {os.getpid()}; stop"),
    ):
        Store(used)
    Store(used).close()


def _other(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE jobs (number)")


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(VERSIONS) + 1}")


def _without_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 0")


def _a_page(path: Path) -> None:
    """Of the many pages of jobs."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * 3 // 4 // 4096 * 4096)
        file.write(b"\xff" * 64)


def _without_database(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"log")
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_text("jobs: []\n" * 100), "not a store, or is damaged"),
        (lambda path: path.write_bytes(b""), "not a store, or is damaged"),
        (lambda path: os.truncate(path, 9000), "is damaged"),
        (_a_page, "is damaged"),
        (_other, "database of another program"),
        (_newer, "has version 5, and this slotwise reads up to 4; update it"),
        (_without_version, "is damaged"),
        (_without_database, "is missing, but its log store.db-wal is not"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a file"),
    ],
)
def test_what_is_no_sound_store_is_left_unchanged(
    used: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    """One message says why and what to do, and the folder is not held."""
    spoil(used / "store.db")
    before = contents(used)
    for _ in range(2):
        with pytest.raises(InputError, match=reason) as caught:
            Store(used)
        assert str(used / "store.db") in str(caught.value)
        assert "another folder" in str(caught.value)
    after = contents(used)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) <= {"store.db-wal"}
    assert after.get("store.db-wal", b"") == before.get("store.db-wal", b"")
    assert not (used / "lock").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in its place is named."""
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"/file"):
        Store(tmp_path / "file")
    with pytest.raises(InputError, match=r"/file"):
        Store(tmp_path / "file" / "service")


def make_old(folder: Path, version: int) -> None:
    """Make a store as an earlier version did, with an open job and one that has ended."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        steps = "".join(VERSIONS[:version])
        database.executescript(
            f"{steps} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version}"
        )
        for number, state in (1, "done"), (2, "open"):
            database.execute(
                "INSERT INTO jobs VALUES (?, 'old-' || ?, 'command', '', x'7b7d', NULL, '/h',"
                " 'default', 'normal', 1.0, NULL, NULL, '[]', 1, 5.0, NULL, NULL, ?, '', NULL,"
                f" NULL, 0, 0, 1, NULL, 0, '{{}}'{', NULL' * (version - 1)})",
                (number, number, state),
            )
        database.execute("INSERT INTO names VALUES ('old', '2')")


@pytest.mark.parametrize("version", range(1, len(VERSIONS)))
def test_a_store_of_an_earlier_version_is_migrated(tmp_path: Path, version: int) -> None:
    """Its jobs are there, its ids stay used, and a copy is as it was before."""
    folder, copy = tmp_path / "old", f"store.db.v{version}"
    make_old(folder, version)
    expected = [
        StoredJob(n, f"old-{n}", "command", spec=b"{}", folder="/h", submitted=5.0, state=s)
        for n, s in ((1, "done"), (2, "open"))
    ]
    for _ in range(2):
        with Store(folder) as store:
            assert store.jobs() == expected
            assert store.tokens() == []
    with Store(folder) as store:
        assert store.new_id("old") == (3, "old-3")
    assert sorted(path.name for path in folder.iterdir()) == ["blobs", "store.db", copy]
    with closing(sqlite3.connect(folder / copy)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (version,)
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (2,)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(folder / copy, again / "store.db")
    (again / copy).write_text("of the user")
    with Store(again) as store:
        assert store.jobs() == expected
    assert (again / copy).read_text() == "of the user"
    assert (again / f"{copy}-2").exists()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """The store is still of version 1, and the next attempt migrates it."""
    make_old(tmp_path / "old", 1)
    with monkeypatch.context() as patch:
        patch.setattr(
            schema, "VERSIONS", (VERSIONS[0], f"{VERSIONS[1]} CREATE TABLE jobs (x);")
        )
        with pytest.raises(InputError, match="jobs already exists"):
            Store(tmp_path / "old")
    with Store(tmp_path / "old") as store:
        assert store.counts() == {"done": 1, "open": 1}


def test_a_missing_file_of_a_large_value(used: Path) -> None:
    """The one job that needs it cannot be read; files that nothing names are removed."""
    with Store(used) as store:
        assert added(store, "large", LARGE).result()
    (large,) = (used / "blobs").iterdir()
    large.rename(used / "blobs" / "other")
    with Store(used) as store:
        assert list((used / "blobs").iterdir()) == []
        with pytest.raises(
            StoreError, match=r"a file in .*blobs is missing; .* a backup"
        ) as caught:
            store.job("large")
        assert caught.value.kind == "damaged"
        assert len(store.jobs()) == 51


def test_a_locked_database(used: Path) -> None:
    """Changes fail when the wait is over, together; later ones succeed."""
    with Store(used, busy_seconds=0.05) as store:
        with closing(sqlite3.connect(used / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            faults = [done.exception() for done in [added(store) for _ in range(20)]]
            assert {getattr(fault, "kind", None) for fault in faults} == {"locked"}
            assert "store.db is locked by another process; end that" in str(faults[0])
            assert store.counts() == {"open": 50}
        assert added(store, "late").result() == ("late",)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process can become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def until_full(store: Store, spec: bytes) -> list[str]:
    """Add jobs until one cannot be written; the ids of the others."""
    ids: list[str] = []
    for _ in range(10_000):
        done = added(store, spec=spec)
        if fault := done.exception():
            assert isinstance(fault, StoreError)
            assert fault.kind == "full"
            assert f"{store.path.parent}/" in str(fault)
            assert "cannot be written" in str(fault)
            assert "free space on its disk" in str(fault)
            return ids
        ids += done.result()
    raise AssertionError("it was never full")


@pytest.mark.parametrize("spec", [bytes(5_000), LARGE])
def test_files_that_cannot_grow(used: Path, spec: bytes) -> None:
    """What was acknowledged is there, and the store is usable again when there is room."""
    with Store(used) as store:
        with files_up_to(1_000_000):
            ids = until_full(store, spec)
            assert len(store.jobs(limit=10_000)) == 50 + len(ids)
        assert added(store, "late", spec).result() == ("late",)
    with Store(used) as store:
        assert [one.id for one in store.jobs(limit=10_000)][50:] == [*ids, "late"]
        assert len(list((used / "blobs").iterdir())) == (spec == LARGE)


def test_an_end_that_cannot_be_written(used: Path) -> None:
    """The call is as it was, with its parts; nothing of its result is left."""
    with Store(used) as store:
        added(store, "calls").result()
        store.add_calls({"calls": [StoredCall("calls", 0, (LARGE,), (None,))]}).result()
        with files_up_to(len(LARGE) + 1000):
            until_full(store, bytes(200_000))
            until_full(store, b"")
            assert store.end_call("calls", 0, True, LARGE, "", 1.0).exception() is not None
            assert [call.parts for call in calls_of(store, "calls")] == [(LARGE,)]
            assert len(list((used / "blobs").iterdir())) == 1
        assert store.end_call("calls", 0, True, LARGE, "", 1.0).result()
        (call,) = calls_of(store, "calls")
        assert (call.is_value, call.value) == (True, LARGE)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("spec", [bytes(5_000), LARGE])
def test_a_full_disk(tiny_disk: Path, spec: bytes) -> None:
    """Jobs are refused until something is removed; no acknowledged one is lost."""
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    with Store(tiny_disk / "service") as store:
        ids = until_full(store, spec)
        assert store.note(1.0, "x" * 2_000_000).exception() is not None
        ballast.unlink()
        assert added(store, "late", bytes(100)).result() == ("late",)
    with Store(tiny_disk / "service") as store:
        assert [one.id for one in store.jobs(limit=10_000)] == [*ids, "late"]
        assert all(one.spec in (spec, bytes(100)) for one in store.open_jobs())


def test_a_disk_that_is_full_when_it_is_opened(tiny_disk: Path) -> None:
    """One message names the file and the remedy; nothing is left half made."""
    ballast = tiny_disk / "ballast"
    with pytest.raises(OSError, match="space"):
        ballast.write_bytes(bytes(5_000_000))
    with pytest.raises(InputError, match=r"cannot be written: .*; free space on its disk"):
        Store(tiny_disk / "service")
    ballast.unlink()
    with Store(tiny_disk / "service") as store:
        assert added(store).result() == ("1",)


def _write(folder: Path, acknowledged: int, statements: int) -> None:
    """Add, in a process of its own, submissions of two jobs, calls and results, until it ends.

    Each acknowledgement is a line of a pipe: what, and the number of the submission. Within the
    transaction that has this statement the process kills itself.
    """
    store, execute, counter = Store(folder), StoreWork.execute, itertools.count(1)

    def counted(work: StoreWork, statement: str, *values: Any) -> int:
        if next(counter) == statements:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(work, statement, *values)

    StoreWork.execute = counted  # type: ignore[method-assign]

    def report(done: Future[Any], what: str, number: int) -> None:
        assert done.exception() is None
        os.write(acknowledged, f"{what} {number}\n".encode())

    def write(number: int) -> Iterator[tuple[str, Future[Any]]]:
        jobs = [StoredJob(*store.new_id(f"{part}{number}"), "calls") for part in "ab"]
        id, large = jobs[0].id, LARGE if number % 5 == 0 else b"small"
        calls = [StoredCall(id, n, (large,), (None,)) for n in range(3)]
        yield "jobs", store.add(jobs, f"key {number}")
        yield "calls", store.add_calls({id: calls})
        yield "value", store.end_call(id, 1, True, large, "", 1.0)
        yield "end", store.end(id, "done", 1.0, result=large)

    for number in itertools.count(sum(store.counts().values())):
        for what, done in write(number):
            done.add_done_callback(lambda done, w=what, n=number: report(done, w, n))
        if number % 4 == 0:
            done.result()


def _acknowledged_until_killed(folder: Path, moment: random.Random) -> list[tuple[str, int]]:
    """Let a process write until it is killed, by itself or after some acknowledgements."""
    reader, writer = os.pipe()
    most, statements = moment.randrange(60), moment.randrange(200)
    child = os.fork()
    if child == 0:
        try:
            _write(folder, writer, statements)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as lines:
        read = list(itertools.islice(lines, most + 1))  # It has opened the store, at least.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        read += lines
    assert os.WTERMSIG(status) == signal.SIGKILL
    found = [line.decode().split() for line in read if line.endswith(b"\n")]
    return [(what, int(number)) for what, number in found]


@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_killed_at_any_moment(tmp_path: Path, kills: int) -> None:
    """All that was acknowledged is there, nothing is there in part, no id is given twice."""
    moment = random.Random(kills)
    acknowledged: list[tuple[str, int]] = []
    for _ in range(kills):
        acknowledged += _acknowledged_until_killed(tmp_path / "store", moment)
    with Store(tmp_path / "store") as store:
        jobs = store.jobs(limit=100_000)
        numbers = {int(one.id[1:]) for one in jobs}
        found = [(what, number) for number in numbers for what in _found(store, number)]
        assert set(found).issuperset(acknowledged)
        assert len(jobs) == 2 * len(numbers)
        names = {one.id for one in jobs}
        assert store.new_id("a0")[1] not in names
        with closing(sqlite3.connect(store.path)) as database:
            (count,) = database.execute("SELECT count(*) FROM blobs").fetchone()
        assert len(list((tmp_path / "store" / "blobs").iterdir())) == count


def _found(store: Store, number: int) -> Iterator[str]:
    """What is there of a submission, each with all that belongs to it."""
    large = LARGE if number % 5 == 0 else b"small"
    ids = store.ids_of(f"key {number}")
    assert ids is not None
    job, other = store.job(ids[0]), store.job(ids[1])
    assert job is not None
    assert other is not None
    yield "jobs"
    if calls := calls_of(store, ids[0]):
        assert len(calls) == 3
        assert all(call.parts == ((large,) if call.state == "open" else ()) for call in calls)
        yield "calls"
    if calls and calls[1].state == "done":
        assert (calls[1].is_value, calls[1].value) == (True, large)
        yield "value"
    if job.state == "done":
        assert job.result == large
        yield "end"
