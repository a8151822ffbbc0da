"""Commits of outputs in threads, so that other jobs go on meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from slotwise.model.decision import Launch
from slotwise.runtime.signals import undisturbed


class Commits:
    """The commits in progress, one for each job. `wake` is called by the thread of each."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._threads: dict[str, tuple[threading.Thread, Launch]] = {}
        self._ended: deque[tuple[Launch, float, BaseException | None]] = deque()

    def begin(self, close: Callable[[], None], launch: Launch, seconds: float) -> None:
        """Call `close` in a thread; `launch` is the last attempt of the job."""

        def commit() -> None:
            problem: BaseException | None = None
            try:
                close()
            except BaseException as error:
                problem = error
            self._ended.append((launch, seconds, problem))
            self._wake()

        job = launch.phase.job
        thread = threading.Thread(target=commit, name=f"commit of {job}")
        self._threads[job] = thread, launch
        thread.start()

    def ended(self) -> Iterator[tuple[Launch, float, BaseException | None]]:
        """The last attempts of jobs whose commits have ended, the seconds, and the errors."""
        while self._ended:
            launch, seconds, error = self._ended.popleft()
            self._threads.pop(launch.phase.job)[0].join()
            yield launch, seconds, error

    def join(self) -> None:
        """Wait for the commits in progress."""
        with undisturbed():
            for thread, _ in self._threads.values():
                thread.join()

    def is_on(self, host: str) -> bool:
        """Whether the output of a job is being committed whose last task ran on a host."""
        return any(launch.host == host for _, launch in self._threads.values())
