"""The store of the service: what is accepted, changed, ended, read and removed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from slotwise.service.store import store as module
from slotwise.service.store.blobs import LARGE_BYTES
from slotwise.service.store.records import StoredCall, StoredJob, StoredTask
from slotwise.service.store.schema import StoreError
from slotwise.service.store.store import Store

LARGE = b"large" * LARGE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a store."""
    return tmp_path / "state" / "service"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """An empty store."""
    with Store(folder) as made:
        yield made


def job(store: Store, stated: str | None = None, **fields: Any) -> StoredJob:
    """A job with a new id, which is not yet added."""
    number, id = store.new_id(stated)
    return StoredJob(number, id, "command", **fields)


def added(store: Store, stated: str | None = None, **fields: Any) -> StoredJob:
    """A job that is in the store."""
    made = job(store, stated, **fields)
    store.add([made]).result()
    return made


def files(store: Store) -> int:
    """The number of files of large values."""
    return len(list((store.path.parent / "blobs").iterdir()))


def test_a_job_is_read_as_it_was_added_also_after_opening_again(folder: Path) -> None:
    """All fields stay, with a path that is not UTF-8 and a large specification."""
    with Store(folder) as store:
        number, id = store.new_id("train")
        made = StoredJob(
            *(number, id, "object", "name", LARGE, None, "/home/\udcff", "p/q", "high", 2.5),
            *(1790000000.5, "ann", ("a", "b"), 7, 1.0, 2.0, None, "open", "r\udce4", 3, b"out"),
            *(True, 1, False, "stream", True, "client", "account", {"weight": [1, 2]}),
        )
        assert store.add([made]).result() == ("train",)
    assert (folder.stat().st_mode & 0o777, (folder / "store.db").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    with Store(folder) as store:
        assert store.job("train") == made
        assert store.stream("stream") == made
        assert store.is_closed("train")
        assert store.open_jobs() == [made]
        assert store.jobs() == [replace(made, spec=b"")]
        assert store.job("other") is None


@pytest.mark.parametrize(
    ("stated", "ids"),
    [
        ([None, None], ["1", "2"]),
        (["a", "a", "b", "a"], ["a", "a-2", "b", "a-3"]),
        (["a-5", "a", "a-5"], ["a-5", "a-6", "a-7"]),
        (["x", None, "2", "1"], ["x", "2", "2-2", "1-2"]),
        (["3", None, None, "3"], ["3", "2", "4", "3-2"]),
        (["5", None, None, None, None], ["5", "2", "3", "4", "6"]),
        (["a-" + "9" * 50, "a"], ["a-" + "9" * 50, "a-1" + "0" * 50]),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_an_id_is_never_given_twice(
    folder: Path, stated: list[str | None], ids: list[str], again: bool
) -> None:
    """Stated ids stay or get numbers, also if each was removed and the store opened again."""
    given = []
    store = Store(folder)
    for one in stated:
        made = added(store, one)
        given.append(made.id)
        if again:
            store.end(made.id, "done", 1.0)
            assert store.forget(made.id).result()
            store.close()
            store = Store(folder)
    store.close()
    assert given == ids


def test_the_same_key_adds_nothing(store: Store) -> None:
    """The same submission sent twice at once has one answer and is there once."""
    first, second = ([job(store), job(store)] for _ in range(2))
    answers = [store.add(jobs, "key", {"A": "1"}) for jobs in (first, second)]
    assert [answer.result() for answer in answers] == [("1", "2"), ("1", "2")]
    assert store.ids_of("key") == ("1", "2")
    assert store.ids_of("other") is None
    assert store.counts() == {"open": 2}


def test_the_same_stream_is_one_job(store: Store) -> None:
    """A stream that is opened twice at once is the first job."""
    answers = [store.add([job(store, stream="s")]) for _ in range(2)]
    assert [answer.result() for answer in answers] == [("1",), ("1",)]
    assert not store.is_closed("1")
    assert store.close_stream("1").result()
    assert store.is_closed("1")


def test_environments_are_kept_once(store: Store) -> None:
    """Jobs with the same variables share them; they are removed with the last of the jobs."""
    for variables in ({"A": "1", "B": "\udcff"}, {"B": "\udcff", "A": "1"}, {"A": "2"}):
        store.add([job(store)], environ=variables).result()
    hashes = [one.environ for one in store.jobs()]
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[0] is not None
    for id in "1", "2":
        assert store.environment(hashes[0]) == {"A": "1", "B": "\udcff"}
        store.end(id, "done", 1.0)
        assert store.forget(id).result()
    assert store.environment(hashes[0]) is None
    assert store.jobs()[0].environ == hashes[2]


def test_the_first_end_of_a_job_counts(store: Store) -> None:
    """Later ends and changes of a job that is over do nothing, and say so."""
    made = added(store)
    assert store.begin("1", 5.0).result()
    assert not store.begin("1", 6.0).result()
    changes = {"priority": "high", "weight": 2.0, "held": True}
    assert store.change("1", **changes).result()
    assert store.end("1", "failed", 7.0, "no such file", 2, LARGE).result()
    assert not store.end("1", "done", 8.0, result=LARGE).result()
    assert not store.change("1", weight=3.0).result()
    assert not store.note_change("1", "cancelled").result()
    ended = {"state": "failed", "ended": 7.0, "reason": "no such file", "code": 2}
    assert store.job("1") == replace(made, begun=5.0, result=LARGE, **changes, **ended)
    assert files(store) == 1


def test_changes_of_a_job_that_come_together_are_all_kept(store: Store) -> None:
    """A job that its user cancels while its promise is broken is both."""
    added(store)
    noted = [store.note_change("1", name) for name in ("promise_broken", "cancelled")]
    assert [one.result() for one in noted] == [True, True]
    job = store.job("1")
    assert job is not None
    assert job.changes == {"promise_broken": True, "cancelled": True}


def test_the_last_attempt_of_a_task_counts(store: Store) -> None:
    """After the task was done, later ends do nothing. A restart numbers attempts again."""
    added(store, "array", tasks=3)
    failed = StoredTask("array", 1, "failed", 1, 2, 1.0, 2.0, "exit code 2")
    done = replace(failed, state="done", attempt=2, code=0, reason="")
    again = replace(failed, code=9)
    assert store.end_task(failed).result()
    assert store.end_task(again).result()
    assert store.tasks("array") == [again]
    ends = [done, replace(failed, attempt=3), replace(done, task=0)]
    answers = [store.end_task(end) for end in ends]
    assert [answer.result() for answer in answers] == [True, False, True]
    assert store.tasks("array") == [replace(done, task=0), done]


def test_calls_are_kept_until_they_have_ended(store: Store) -> None:
    """The same number again changes nothing; the first end counts; then the parts go."""
    added(store, "calls", stream="key")
    calls = [
        StoredCall("calls", 0, (b"call", b"input", None), (None, None, ["key", 4])),
        StoredCall("calls", 2, (LARGE,), (None,)),
        StoredCall("calls", 3, (b"", LARGE), (None, None)),
    ]
    store.add_calls({"calls": calls}).result()
    store.add_calls({"calls": [replace(calls[0], parts=(b"other",))]}).result()
    assert calls_of(store, "calls") == calls
    assert files(store) == 2
    assert store.end_call("calls", 2, True, LARGE, "/out\udcff", 9.0).result()
    assert not store.end_call("calls", 2, False, b"late", "", 10.0).result()
    assert not store.end_call("calls", 7, True, b"unknown", "", 10.0).result()
    assert store.end_call("calls", 3, None, None, "", 9.0, state="cancelled").result()
    assert files(store) == 1
    states = [(0, "open", False), (2, "done", True), (3, "cancelled", False)]
    assert store.call_states("calls") == states
    assert store.call("calls", 0) == calls[0]
    assert store.call("calls", 1) is None
    ended = replace(
        *(calls[1],), parts=(), state="done", value=LARGE, is_value=True, printed="/out\udcff",
        ended=9.0,
    )  # fmt: skip
    assert calls_of(store, "calls")[1] == ended


def calls_of(store: Store, job: str) -> list[StoredCall]:
    """All calls of a job."""
    found = [store.call(job, one.number) for one in store.call_states(job)]
    assert None not in found
    return [one for one in found if one]


def test_calls_may_end_while_they_are_read(store: Store) -> None:
    """Each call is read as it is then, although the file of its parts has gone."""
    added(store, "calls")
    calls = [StoredCall("calls", number, (LARGE,), (None,)) for number in range(7)]
    store.add_calls({"calls": calls}).result()
    found = []
    for one in store.call_states("calls"):
        if one.number in (2, 4):
            assert store.end_call("calls", one.number, True, b"", "", 1.0).result()
        call = store.call("calls", one.number)
        assert call is not None
        found.append((call.state, call.parts == (LARGE,)))
    ended = ("done", False)
    assert found == [ended if number in (2, 4) else ("open", True) for number in range(7)]


def test_calls_of_an_unknown_job_fail_alone(store: Store) -> None:
    """The other changes of the same transaction happen."""
    answers: list[Future[Any]] = []
    for number in range(20):
        answers.append(store.add([job(store)]))
        answers.append(store.add_calls({"unknown": [StoredCall("unknown", number)]}))
    faults = [answer.exception() for answer in answers]
    assert faults[::2] == [None] * 20
    assert {getattr(fault, "kind", None) for fault in faults[1::2]} == {"missing"}
    assert store.counts() == {"open": 20}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, ["1", "2", "3", "4", "5"]),
        ({"limit": 2}, ["4", "5"]),
        ({"limit": 2, "before": 4}, ["2", "3"]),
        ({"states": ["open", "failed"]}, ["1", "3", "4", "5"]),
        ({"states": []}, []),
        ({"pool": "a"}, ["1", "2", "3"]),
        ({"pool": "a", "user": "u3", "states": ["failed"]}, ["3"]),
        ({"ids": ["4", "1", "9"]}, ["1", "4"]),
    ],
)
def test_jobs_are_listed_by_number(store: Store, query: Any, ids: list[str]) -> None:
    """The last ones that have all that is asked for, the newest last."""
    for number in range(1, 6):
        added(store, pool="a" if number < 4 else "b", user=f"u{number}")
    store.end("2", "done", 1.0)
    store.end("3", "failed", 1.0).result()
    assert [one.id for one in store.jobs(**query)] == ids
    assert store.counts() == {"done": 1, "failed": 1, "open": 3}


def test_strings_that_are_not_unicode(store: Store) -> None:
    """They are kept as keys, and are the id of no job."""
    assert store.add([job(store, stream="\udcff")], "key\udcff").result() == ("1",)
    assert store.add([job(store)], "key\udcff").result() == ("1",)
    assert store.add([job(store, stream="\udcff")]).result() == ("1",)
    assert store.ids_of("key\udcff") == ("1",)
    assert store.stream("\udcff") == store.job("1")
    assert store.job("\udcff") is None
    assert store.jobs(ids=["\udcff", "1"]) == [store.job("1")]
    fault = store.change("\udcff", weight=2.0).exception()
    assert getattr(fault, "kind", None) == "missing"


def test_retention_removes_the_jobs_that_ended_first(store: Store, monkeypatch: Any) -> None:
    """Open and later jobs stay. Large jobs are removed in steps, with all of their files."""
    monkeypatch.setattr(module, "PRUNED_JOBS", 2)
    monkeypatch.setattr(module, "PRUNED_ROWS", 3)
    for number in range(1, 8):
        made = job(store, spec=LARGE)
        store.add([made], f"key {number}", {"N": str(number)})
        store.add_calls(
            {made.id: [StoredCall(made.id, n, (LARGE,), (None,)) for n in range(4)]}
        )
        store.end_task(StoredTask(made.id, 0, "done"))
        if number != 3:
            store.end(made.id, "done", 100.0 - number)
    store.note(1.0, "all is written").result()
    hashes = [str(one.environ) for one in store.jobs()]
    assert store.prune(98.0, 3) == ["7", "6", "5"]
    assert store.prune(98.0, 10) == ["4"]
    assert store.prune(98.0, 10) == []
    assert [one.id for one in store.jobs()] == ["1", "2", "3"]
    assert [store.ids_of(f"key {number}") for number in (3, 4)] == [("3",), None]
    assert [store.environment(one) for one in hashes[2:4]] == [{"N": "3"}, None]
    assert (store.tasks("4"), calls_of(store, "4")) == ([], [])
    assert files(store) == 3 * 5


def test_only_jobs_that_are_over_are_forgotten(store: Store) -> None:
    """An open job, and one that does not exist, are not."""
    added(store)
    assert not store.forget("1").result()
    assert not store.forget("9").result()
    store.end("1", "cancelled", 1.0)
    assert store.forget("1").result()
    assert store.jobs() == []


def test_notes_are_read_in_order(store: Store) -> None:
    """The last ones, the latest last."""
    for at in range(5):
        store.note(float(at), f"change {at}").result()
    assert store.notes(2) == [(3.0, "change 3"), (4.0, "change 4")]


def test_many_threads_write_and_read(store: Store) -> None:
    """Every job has an id of its own and all that was added to it."""
    threads = [threading.Thread(target=_submit, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one.id for one in store.jobs(limit=1000)]
    assert len(set(ids)) == 8 * 20
    values = [(call.is_value, call.value) for id in ids for call in calls_of(store, id)]
    assert values == [(True, id.encode()) for id in ids]


def _submit(store: Store) -> None:
    for _ in range(20):
        made = job(store, "same")
        store.add([made])
        store.add_calls({made.id: [StoredCall(made.id, 0, (b"call",), (None,))]})
        store.end_call(made.id, 0, True, made.id.encode(), "", 1.0).result()
        assert store.job(made.id) == made


def test_closing_writes_what_waits(folder: Path) -> None:
    """Then changes and questions fail; a future cannot be cancelled."""
    store = Store(folder)
    answers = [store.add([job(store)]) for _ in range(50)]
    assert not answers[-1].cancel()
    store.close()
    store.close()
    assert [answer.result() for answer in answers] == [(str(n),) for n in range(1, 51)]
    late = store.note(1.0, "late").exception()
    assert isinstance(late, StoreError)
    assert late.kind == "closed"
    with pytest.raises(StoreError, match="closed"):
        store.counts()
    with Store(folder) as again:
        assert again.counts() == {"open": 50}
        assert again.new_id() == (51, "51")


@pytest.mark.slow
def test_opening_with_many_old_jobs(folder: Path) -> None:
    """100,000 old jobs and 1,000 open ones cost a small part of the time that wrote them.

    It is about 0.2 s, and a fiftieth; an opening that reads or converts all rows takes more.
    """
    began = monotonic()
    with Store(folder) as store:
        for count, ends in (100_000, True), (1_000, False):
            for first in range(0, count, 1000):
                jobs = [job(store, f"job {first + n}", spec=b"s" * 300) for n in range(1000)]
                done = store.add(jobs, f"key {count} {first}", {"PATH": "/bin"})
                for one in jobs if ends else ():
                    done = store.end(one.id, "done", 1.0)  # type: ignore[assignment]
                done.result()
    written = monotonic()
    with Store(folder) as store:
        assert len(store.open_jobs()) == 1_000
        opened = monotonic()
    assert (opened - written) * 10 < written - began
