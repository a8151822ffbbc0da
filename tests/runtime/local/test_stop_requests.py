"""Tasks that are asked to stop: which ones get the request, and what they can do."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotwise import task as running
from slotwise.runtime.local.workers import Reply, Workers
from tiers import examples

TIMEOUT = 120.0
"""A time-out in seconds: a test that waits for this long has failed."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    """One slot."""
    with Workers(1) as pool:
        yield pool


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    """A pipe through which a running task can send messages to the test."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


def one(workers: Workers) -> Reply:
    """The only outcome of the next wait."""
    (outcome,) = workers.wait(TIMEOUT)
    return outcome


def begun(workers: Workers, function: Callable[..., object], fifo: str) -> None:
    """Starts a task with the path of a pipe; returns when it has written into it."""
    workers.start(0, f"begun {time.monotonic_ns()}", function, (fifo,))
    Path(fifo).read_text()


def ask_to_stop(workers: Workers, seconds: float = 600.0) -> None:
    """Asks the task to stop within the given seconds."""
    workers.tell(0, time.monotonic() + seconds)


def call(workers: Workers, function: Callable[..., object], kept: bytes = b"") -> Reply:
    """Runs a task to its end."""
    workers.start(0, f"call {time.monotonic_ns()}", function, (), kept)
    return one(workers)


# How a task learns of a request


def test_a_task_can_ask_whether_it_should_stop(workers: Workers, fifo: str) -> None:
    """It sees the request and its time; if it continues and succeeds, it is done."""

    def ask(fifo: str) -> tuple[bool, float, float]:
        before = running.stop_requested(), running.seconds_left()
        Path(fifo).write_text("")
        while not running.stop_requested():
            time.sleep(0.001)
        return *before, running.seconds_left()

    begun(workers, ask, fifo)
    ask_to_stop(workers, 600.0)
    outcome = one(workers)
    assert outcome.status == "done"
    assert outcome.value[:2] == (False, float("inf"))  # type: ignore[index]
    assert 600 - TIMEOUT < outcome.value[2] <= 600  # type: ignore[index]
    assert call(workers, running.stop_requested).value is False


def test_a_hook_is_called_once_for_several_requests(workers: Workers, fifo: str) -> None:
    """The hook gets the seconds left; the task continues; a new instant is seen at once."""

    def work(fifo: str) -> list[float]:
        heard: list[float] = []
        running.on_stop_request(heard.append)
        Path(fifo).write_text("")
        while not heard:
            time.sleep(0.001)
        Path(fifo).write_text("")
        while running.seconds_left() > 300:
            time.sleep(0.001)
        return heard

    begun(workers, work, fifo)
    ask_to_stop(workers, 600)
    Path(fifo).read_text()
    ask_to_stop(workers, 200)
    (seconds,) = one(workers).value  # type: ignore[misc]
    assert 600 - TIMEOUT < seconds <= 600


def test_an_error_in_a_hook_is_shown_and_the_task_continues(
    workers: Workers, fifo: str
) -> None:
    """Even an exit: an error in a hook does not fail the task."""

    def work(fifo: str) -> str:
        called: list[float] = []
        os.dup2(os.open(f"{fifo}-shown", os.O_CREAT | os.O_WRONLY), 2)

        def fail(seconds_left: float) -> None:
            called.append(seconds_left)
            raise SystemExit("no luck")

        running.on_stop_request(fail)
        Path(fifo).write_text("")
        while not called:
            time.sleep(0.001)
        return "done all the same"

    begun(workers, work, fifo)
    ask_to_stop(workers)
    assert one(workers).value == "done all the same"
    shown = Path(f"{fifo}-shown").read_text()
    assert "the stop hook of a task failed" in shown
    assert "SystemExit: no luck" in shown


def test_a_request_before_the_start_of_a_task_reaches_it(workers: Workers) -> None:
    """Even if its process does not run Python yet: the hook is called when it is set."""

    def work() -> tuple[bool, int]:
        heard: list[float] = []
        running.on_stop_request(heard.append)
        return running.stop_requested(), len(heard)

    (pid,) = workers.pids()
    os.kill(pid, signal.SIGSTOP)
    workers.start(0, "key", work, ())
    ask_to_stop(workers)
    os.kill(pid, signal.SIGCONT)
    assert one(workers).value == (True, 1)


def test_a_task_that_blocks_is_woken_up(workers: Workers, fifo: str) -> None:
    """In a sleep, in a read that never ends, in a lock that nobody releases."""

    def asleep(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        Path(fifo).write_text("")
        time.sleep(600)

    def reading(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        Path(fifo).write_text("")
        os.read(os.pipe()[0], 1)

    def locked(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        lock = threading.Lock()
        with lock:
            Path(fifo).write_text("")
            lock.acquire()

    for function in (asleep, reading, locked):
        begun(workers, function, fifo)
        ask_to_stop(workers)
        assert one(workers).status == "stopped"


# What a task keeps


def test_a_kept_value_goes_to_the_next_attempt_only(workers: Workers, fifo: str) -> None:
    """A value of a class of the task; an attempt that gets nothing finds nothing."""

    def work(fifo: str) -> None:
        class Own:
            pages = 7

        Path(fifo).write_text("")
        while not running.stop_requested():
            time.sleep(0.001)
        try:
            running.stop(keep=Own())
        except Exception:
            raise AssertionError("stop passes user code by") from None

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert outcome.status == "stopped"
    assert outcome.seconds > 0
    again = call(workers, lambda: running.kept().pages, outcome.value)  # type: ignore[arg-type]
    assert again.value == 7
    assert call(workers, lambda: running.kept("nothing")).value == "nothing"


def test_large_values_are_kept(workers: Workers, fifo: str) -> None:
    """Large values are passed to the manager and to the next attempt without unpickling."""
    times = examples(40_000, slow=400_000)

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=bytes(range(256)) * times))
        Path(fifo).write_text("")
        time.sleep(600)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    kept = one(workers).value
    assert isinstance(kept, bytes | bytearray)
    assert len(kept) > 256 * times
    again = call(workers, lambda: running.kept() == bytes(range(256)) * times, kept)
    assert again.value is True


def test_values_that_cannot_be_pickled_cannot_be_kept(workers: Workers, fifo: str) -> None:
    """It is an error of the task, and so is a stop without a request; the text says so."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=threading.Lock()))
        Path(fifo).write_text("")
        time.sleep(600)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert outcome.status == "error"
    assert str(outcome.value).startswith("what is kept, of type lock, cannot be sent between")
    outcome = call(workers, lambda: running.stop(keep=1))
    assert outcome.status == "error"
    assert "RuntimeError: this task was not asked to stop" in str(outcome.value)


def test_a_task_that_stops_without_a_value_keeps_nothing(workers: Workers, fifo: str) -> None:
    """It keeps nothing; its cleanup has run."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop())
        try:
            Path(fifo).write_text("")
            time.sleep(600)
        finally:
            Path(fifo + "-cleaned").touch()

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert (outcome.status, bytes(outcome.value)) == ("stopped", b"")  # type: ignore[call-overload]
    assert Path(fifo + "-cleaned").exists()


# What is not affected


def test_sigterm_from_elsewhere_has_no_effect(workers: Workers, fifo: str) -> None:
    """A stray signal affects neither an idle worker nor a task."""
    assert call(workers, lambda: 1).value == 1
    os.kill(workers.pids()[0], signal.SIGTERM)

    def work(fifo: str) -> bool:
        running.on_stop_request(lambda seconds: running.stop())
        Path(fifo).write_text("")
        Path(fifo).read_text()
        return running.stop_requested()

    begun(workers, work, fifo)
    os.kill(workers.pids()[0], signal.SIGTERM)
    Path(fifo).write_text("")
    assert one(workers).value is False


def test_a_starting_worker_survives_sigterm() -> None:
    """A signal does no harm from the first instant of a worker."""
    with Workers(1) as workers:
        (pid,) = workers.pids()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            os.kill(pid, signal.SIGTERM)
        assert call(workers, os.getpid).value == pid


@pytest.mark.parametrize(
    ("hook", "times"), [(True, examples(10, slow=40)), (False, examples(100, slow=400))]
)
def test_a_request_at_the_end_of_a_task_affects_no_other_task(
    hook: bool, times: int, workers: Workers
) -> None:
    """Requests at the start and end of tasks: each task is whole; the next is not affected."""

    def work(number: int) -> int:
        if hook:
            running.on_stop_request(lambda seconds: running.stop(keep=number))
        elif running.stop_requested():
            running.stop(keep=number)
        return number

    def innocent() -> tuple[bool, object]:
        running.on_stop_request(lambda seconds: running.stop(keep="wrong"))
        return running.stop_requested(), running.kept()

    seen: list[str] = []
    delay = 100e-6  # Seconds; it comes ever nearer to the instant of the end.
    guard = time.monotonic() + TIMEOUT
    while len(seen) < times or len(set(seen)) < 2:
        assert time.monotonic() < guard
        number = len(seen)
        workers.start(0, "work", work, (number,))
        assert one(workers).value == number  # The worker that runs it is ready.
        pids = workers.pids()
        workers.start(0, "work", work, (number,))
        until = time.monotonic() + delay
        while time.monotonic() < until:
            pass
        ask_to_stop(workers)
        outcome = one(workers)
        seen.append(outcome.status)
        delay *= 1.2 if outcome.status == "stopped" else 0.8
        assert outcome.value == number or outcome.status == "stopped"
        assert (workers.pids() == pids) == (not hook or outcome.status == "done")
        workers.start(0, "innocent", innocent, ())
        assert one(workers).value == (False, None)
    assert set(seen) == {"done", "stopped"}


def test_a_task_that_stops_during_an_import_leaves_no_broken_process(
    workers: Workers, fifo: str
) -> None:
    """A half-imported module does not affect the next attempt."""
    folder = str(Path(fifo).parent)
    Path(folder, "half.py").write_text(
        "import sys, time\n"
        "assert not hasattr(sys, 'half'), 'cannot be loaded twice in a process'\n"
        "sys.half = True\n"
        "if sys.fifo:\n"
        "    open(sys.fifo, 'w').close()\n"
        "    time.sleep(600)\n"
    )

    def work(fifo: str) -> str:
        sys.path.append(folder)
        sys.fifo = fifo  # type: ignore[attr-defined]
        running.on_stop_request(lambda seconds: running.stop(keep="half"))
        import half  # type: ignore[import-not-found]

        return str(half.__name__)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    assert one(workers).status == "stopped"
    assert call(workers, lambda: work("")).value == "half"


def test_a_task_that_fails_while_it_stops_has_stopped(workers: Workers, fifo: str) -> None:
    """An error while a stopped task unwinds does not make it fail."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="place"))
        try:
            Path(fifo).write_text("")
            time.sleep(600)
        finally:
            raise ValueError("the file is not complete")

    begun(workers, work, fifo)
    ask_to_stop(workers)
    stopped = one(workers)
    assert stopped.status == "stopped"
    assert call(workers, running.kept, bytes(stopped.value)).value == "place"  # type: ignore[call-overload]


def test_signals_do_not_corrupt_large_results_and_arguments(workers: Workers) -> None:
    """Signals arrive constantly while frames of megabytes go both ways."""
    large = bytes(range(256)) * 80_000
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGTERM)
            ask_to_stop(workers)

    assert call(workers, lambda: 1).value == 1
    (pid,) = workers.pids()
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(examples(2, slow=5)):
            workers.start(0, "reverse", lambda data: data[::-1], (large,))
            assert one(workers).value == large[::-1]
    finally:
        over.set()
        thread.join()


def test_a_signal_handler_of_user_code_is_limited_to_its_task(
    workers: Workers, fifo: str
) -> None:
    """It is called instead of the hook; the next task has its hook again."""

    def own(fifo: str) -> list[str]:
        heard: list[str] = []
        running.on_stop_request(lambda seconds: heard.append("hook"))
        signal.signal(signal.SIGTERM, lambda number, frame: heard.append("own"))
        Path(fifo).write_text("")
        while not heard:
            time.sleep(0.001)
        assert running.stop_requested()
        return heard

    def after(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop())
        Path(fifo).write_text("")
        time.sleep(600)

    begun(workers, own, fifo)
    ask_to_stop(workers)
    assert one(workers).value == ["own"]
    begun(workers, after, fifo)
    ask_to_stop(workers)
    assert one(workers).status == "stopped"


def test_a_forked_child_ends_by_sigterm(workers: Workers) -> None:
    """Processes that user code forks can be terminated normally."""

    def fork() -> int:
        child = os.fork()
        if not child:
            time.sleep(600)
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert call(workers, fork).value == -signal.SIGTERM


def test_outside_of_a_task_requests_have_defaults() -> None:
    """Code that runs without a worker gets the defaults."""
    assert running.stop_requested() is False
    assert running.seconds_left() == float("inf")
    assert running.kept(3) == 3
    running.on_stop_request(lambda seconds: pytest.fail("nobody was asked"))
    with pytest.raises(RuntimeError, match="this task was not asked to stop"):
        running.stop()


def test_a_stopped_sleep_continues_where_it_was(workers: Workers) -> None:
    """Of ten minutes most are kept; the next attempt adds what it sleeps; the last one ends."""
    kept = pickle.dumps(500.0)
    for _ in range(2):
        workers.start(0, "sleep", running.sleep, (600.0,), kept)
        assert workers.wait(0.1) == []
        ask_to_stop(workers)
        stopped = one(workers)
        assert stopped.status == "stopped"
        before, now = pickle.loads(kept), pickle.loads(bytes(stopped.value))  # type: ignore[call-overload]
        assert before < now <= before + stopped.seconds
        kept = stopped.value  # type: ignore[assignment]
    workers.start(0, "sleep", running.sleep, (600.0,), pickle.dumps(599.9))
    last = one(workers)
    assert last.status == "done"
    assert last.seconds >= 0.09
