"""What the tasks of a job printed, and print, as frames."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from slotwise.backends.attempt_logs import ERR, AttemptFile, file_name, files_of_job
from slotwise.service.engine.engine import OVER, Engine
from slotwise.service.engine.hub import HubListener, of_job
from slotwise.service.wire import frame

POLL_SECONDS, POLL_SECONDS_MAX = 0.25, 2.0
"""How often files of running tasks are read: the longer they do not grow, the less often."""

PIECE_BYTES = 1 << 18
"""The most bytes of a frame."""

SENT_BYTES = 1 << 20
"""Bytes of frames that are read before they are sent: a slow reader costs no more memory."""


@dataclass(slots=True)
class Followed:
    """A file of an attempt, and how much of it has been sent."""

    file: AttemptFile
    run: int
    at: int = 0

    def frames(self) -> Iterator[bytes]:
        """What was added to the file since the last call."""
        try:
            with open(self.file.path, "rb", opener=_at_once) as opened:
                opened.seek(self.at)
                while data := opened.read(PIECE_BYTES):
                    self.at += len(data)
                    header = {
                        "run": self.run,
                        "phase": self.file.phase,
                        "task": self.file.task,
                        "attempt": self.file.attempt,
                        "stream": self.file.stream,
                    }
                    yield frame(header, (data,))
        except (FileNotFoundError, BlockingIOError):
            return


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for its owner, who may be a user and hold a lease on it."""
    return os.open(path, flags | os.O_NONBLOCK)


async def followed(
    engine: Engine,
    job: str,
    *,
    task: int | None,
    stream: str | None,
    follows: bool,
    tail: int,
) -> AsyncIterator[bytes]:
    """The output of a job of a service; see `output_of`."""

    def is_over() -> bool:
        record = engine.store.job(job)
        return record is None or record.state in OVER

    with HubListener(engine.hub, [of_job(job)]) as listener:
        async for piece in output_of(
            lambda: _files(engine.folder, job),
            is_over,
            listener.take,
            task=task,
            stream=stream,
            follows=follows,
            tail=tail,
        ):
            yield piece


async def output_of(
    files: Callable[[], Iterator[tuple[int, AttemptFile]]],
    is_over: Callable[[], bool],
    wait: Callable[[float], Awaitable[object]],
    *,
    task: int | None = None,
    stream: str | None = None,
    follows: bool = False,
    tail: int = 0,
) -> AsyncIterator[bytes]:
    """The frames with the output of a job: of all its attempts, in the order of their starts.

    files, is_over  the files of its attempts now, with the run of each; whether it is over
    wait          waits for a change, at most for some seconds
    task, stream  only those of this task, or of "out" or "err"
    follows       whether to continue until the job is over
    tail          only the last bytes of each file; 0: all
    """
    known: dict[tuple[int, int], Followed] = {}

    def read() -> Iterator[bytes]:
        for run, file in files():
            is_wanted = task in (None, file.task) and stream in (None, file.stream)
            if not is_wanted:
                continue
            try:
                status = file.path.stat()
            except FileNotFoundError:
                continue
            # A command that outlived a server writes to one file, with a name in each run.
            place = status.st_dev, status.st_ino
            if place not in known:
                known[place] = Followed(file, run, max(0, status.st_size - tail) if tail else 0)
        return (piece for one in known.values() for piece in one.frames())

    pause = POLL_SECONDS
    while True:
        ends = await run_in_threadpool(is_over)  # Before reading: nothing is missed.
        pieces = await run_in_threadpool(read)
        while some := await run_in_threadpool(_some, pieces):
            pause = POLL_SECONDS
            yield some
        if ends or not follows:
            return
        await wait(pause)
        pause = min(POLL_SECONDS_MAX, 1.2 * pause)


def _some(pieces: Iterator[bytes]) -> bytes:
    """The next pieces, joined; empty at their end."""
    found, size = list[bytes](), 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= SENT_BYTES:
            break
    return b"".join(found)


def _files(folder: Path, job: str) -> Iterator[tuple[int, AttemptFile]]:
    """The files of all attempts of a job, with the numbers of the runs of the server."""
    for run in sorted(folder.glob("runs/*")):
        found = files_of_job(run / "logs" / file_name(job))
        for file in sorted(found, key=lambda one: (*one[1:4], one.stream == ERR)):
            yield int(run.name), file
