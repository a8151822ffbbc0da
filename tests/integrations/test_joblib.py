"""Loops of joblib and searches of scikit-learn run on a session."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import pytest

joblib = pytest.importorskip("joblib")

from slotwise import InputError, Session, read_log  # noqa: E402
from slotwise.integrations.joblib import InSlotBackend  # noqa: E402

Parallel, delayed = joblib.Parallel, joblib.delayed


@pytest.fixture
def on_session(session: Session) -> Iterator[None]:
    """Loops run on the session."""
    with joblib.parallel_config(backend="slotwise", session=session, pool="research"):
        yield


def inner_loop(count: int) -> tuple[str, int, list[float]]:
    """The backend of a loop in a worker, its process, and its results."""
    backend, _ = joblib.parallel.get_active_backend()
    found = Parallel(n_jobs=2)(delayed(os.getpid)() for _ in range(count))
    assert set(found) <= {os.getpid()}
    return type(backend).__name__, Parallel(n_jobs=2)(delayed(sqrt)(4) for _ in range(count))


def wait_or_fail(mark: str) -> None:
    """The first call waits for ever; the others fail when it has begun."""
    if mark:
        Path(mark).touch()
        time.sleep(3600)
    raise LookupError("why")


def test_a_loop_is_one_job_of_its_pool(tmp_path: Path) -> None:
    """Its results are in order; small calls are batched."""
    log = tmp_path / "log.jsonl"
    with (
        Session(2, log=log) as session,
        joblib.parallel_config("slotwise", session=session, pool="research", name="roots"),
    ):
        assert Parallel()(delayed(sqrt)(n * n) for n in range(500)) == list(range(500))
    arrived = [event for turn in read_log(log).turns for event in turn.events]
    jobs = [event.job for event in arrived if type(event).__name__ == "JobArrived"]
    assert [(job.id, job.pool) for job in jobs] == [("roots", "research")]


@pytest.mark.usefixtures("on_session")
def test_results_as_a_generator() -> None:
    """Two loops may be under way at once."""
    first = Parallel(return_as="generator")(delayed(sqrt)(n * n) for n in range(20))
    second = Parallel(return_as="generator")(delayed(abs)(-n) for n in range(20))
    assert list(zip(first, second, strict=True)) == [(n, n) for n in range(20)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n_jobs", [-1, 3])
def test_a_loop_uses_hosts_that_are_added(n_jobs: int, tmp_path: Path) -> None:
    """It began with one slot; in the end, three calls run at once."""
    with (
        Session(1) as session,
        joblib.parallel_config("slotwise", session=session, n_jobs=n_jobs),
    ):
        calls = (delayed(meet)(tmp_path, n) for n in range(20))
        results = Parallel(return_as="generator", batch_size=1)(calls)
        assert next(results) == 0
        session.add_host("more", 2)
        (tmp_path / "go").touch()
        assert list(results) == list(range(1, 20))


def meet(folder: Path, number: int) -> int:
    """Call 1 returns when it may, those after it when three of them have met."""
    if number > 1:
        (folder / f"met-{number}").touch()
    until = time.monotonic() + 60
    while number and not (
        (folder / "go").exists() if number == 1 else len([*folder.glob("met-*")]) >= 3
    ):
        assert time.monotonic() < until, "three calls did not run at once"
        time.sleep(0.01)
    return number


@pytest.mark.usefixtures("on_session")
def test_inner_loops_stay_in_their_slot() -> None:
    """They make their calls one after another, in the process of the outer call."""
    found = Parallel()(delayed(inner_loop)(n) for n in range(4))
    assert found == [(InSlotBackend.__name__, [2.0] * n) for n in range(4)]


@pytest.mark.usefixtures("on_session")
def test_an_exception_stops_the_other_calls(session: Session, tmp_path: Path) -> None:
    """Also one that would never end; then both slots are free again."""
    marks = [str(tmp_path / "mark"), "", ""]
    with pytest.raises(LookupError, match="why"):
        Parallel(batch_size=1)(delayed(wait_or_fail)(mark) for mark in marks)
    assert Parallel()(delayed(sqrt)(n * n) for n in range(4)) == [0, 1, 2, 3]


@pytest.mark.usefixtures("on_session")
def test_a_timeout_stops_the_loop() -> None:
    """The calls that run are stopped."""
    with pytest.raises(joblib.parallel.TimeoutError):
        Parallel(timeout=0.01)(delayed(time.sleep)(3600) for _ in range(3))


def test_options_are_checked(session: Session) -> None:
    """With the message of the executor."""
    with (
        pytest.raises(InputError, match="weight"),
        joblib.parallel_config("slotwise", session=session, weight=-1.0),
    ):
        Parallel()(delayed(sqrt)(n) for n in range(3))


@pytest.mark.parametrize(("n_jobs", "slots"), [(None, 9), (2, 3)])
def test_batches_of_more_slots_than_there_are_are_refused(
    session: Session, n_jobs: int | None, slots: int
) -> None:
    """The message names the options of joblib, and not those of executors."""
    message = f"each batch occupies {slots} slots .* the session has 2; give at most slots=2"
    with (
        pytest.raises(InputError, match=message),
        joblib.parallel_config("slotwise", session=session, slots=slots, n_jobs=n_jobs),
    ):
        Parallel()(delayed(abs)(n) for n in (-1, -2))


def test_n_jobs_has_room_for_a_batch() -> None:
    """Otherwise the message says how many it needs."""
    with (
        Session(4) as session,
        pytest.raises(InputError, match=r"a loop holds at most 2 .*; give at least n_jobs=3"),
        joblib.parallel_config("slotwise", session=session, slots=3, n_jobs=2),
    ):
        Parallel()(delayed(abs)(n) for n in (-1, -2))


@pytest.mark.slow
@pytest.mark.usefixtures("on_session")
def test_scikit_learn_finds_the_same_as_in_one_process() -> None:
    """Scores, and a search whose estimators have loops of their own."""
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV, cross_val_score

    rows, labels = make_classification(120, random_state=0)
    forest = RandomForestClassifier(5, random_state=0, n_jobs=2)

    def search(n_jobs: int) -> tuple[list[float], list[float], dict[str, int]]:
        scores = cross_val_score(forest, rows, labels, cv=3, n_jobs=n_jobs)
        grid = GridSearchCV(forest, {"max_depth": [1, 3]}, cv=3, n_jobs=n_jobs)
        grid.fit(rows, labels)
        return list(scores), list(grid.cv_results_["mean_test_score"]), grid.best_params_

    on_slots = search(2)
    with joblib.parallel_config("threading"):
        assert on_slots == search(1)


def test_a_loop_requests_resources() -> None:
    """They are those of each batch, and refused if no host has them."""
    with Session(1, resources={"license": 1}) as session:
        with joblib.parallel_config("slotwise", session=session, resources={"license": 1}):
            assert Parallel(n_jobs=2)(delayed(sqrt)(n * n) for n in range(3)) == [0, 1, 2]
        with (
            joblib.parallel_config("slotwise", session=session, resources={"license": 2}),
            pytest.raises(InputError, match="requests license 2, but the host with the most"),
        ):
            Parallel(n_jobs=2)(delayed(sqrt)(n * n) for n in range(3))
