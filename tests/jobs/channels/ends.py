"""Channels of all kinds between this process and a forked child."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from certificates import contexts
from slotwise.jobs.channels.files import FileReader, FileWriter, Spilling
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.tcp import Listener, connect

RUNNING = ("shm", "tcp", "tls", "spilling shm", "spilling tcp", "spilling tls")
"""The kinds of channels whose ends run at the same time."""

BLOCKING = ("shm", "tcp", "tls")
"""The kinds whose writer waits for the reader."""

KINDS = (*RUNNING, "file", "spilling file")

CAPACITY, MEMORY = 1 << 14, 1 << 14
SECRET = b"a secret of the run"


class Child:
    """A forked process that runs a function; what came of it is told to the parent."""

    def __init__(self, body: Callable[[], object]) -> None:
        self._result, theirs = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Threads of pytest do not matter to the child.
            self.pid = os.fork()
        if self.pid:
            os.close(theirs)
            return
        signal.alarm(60)  # Whatever goes wrong, no process is left.
        # Python ignores what a signal handler raises within one. Hypothesis adds one.
        gc.callbacks.clear()
        try:
            outcome: tuple[str, object] = "done", body()
        except BaseException as error:
            outcome = type(error).__name__, str(error)
        with suppress(OSError):
            os.write(theirs, pickle.dumps(outcome))
        os._exit(0)

    def outcome(self) -> Any:
        """The name of the error and its text, or "done" and a result; None if it was killed."""
        with open(self._result, "rb", closefd=False) as file:
            told = file.read()
        self.end()
        return pickle.loads(told) if told else None

    def has_ended(self) -> bool:
        """Whether it has ended; its outcome can still be asked for."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def kill(self) -> None:
        """Kill it, without a chance to say anything."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.end()

    def end(self) -> None:
        """Wait for its end."""
        if self.pid:
            os.waitpid(self.pid, 0)
            os.close(self._result)
            self.pid = 0


@contextmanager
def reading(
    kind: str, body: Callable[[Writer], object], folder: Path
) -> Iterator[tuple[Reader, Child]]:
    """The reader of a channel whose writer is given to a function in a child."""
    spills, _, medium = kind.rpartition(" ")
    if medium == "shm":
        ring = SharedRing(CAPACITY)
        child = Child(lambda: body(ring.writer()))
        reader = ring.reader()
    elif medium in ("tcp", "tls"):
        theirs, ours = contexts("ours") if medium == "tls" else (None, None)
        with Listener("127.0.0.1", SECRET, theirs) as listener:
            child = Child(lambda: body(connect(listener.address, SECRET, "it", 30, ours)))
            reader = listener.accept(["it"], 30)["it"]
    else:
        child = Child(lambda: write_file(folder / "written", body))
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        reader = FileReader(folder / "written", 1)
    if spills:
        reader = Spilling(reader, MEMORY, folder)
    try:
        yield reader, child
    finally:
        reader.close()
        child.kill()


@contextmanager
def writing(
    kind: str, body: Callable[[Reader], object], folder: Path
) -> Iterator[tuple[Writer, Child]]:
    """The writer of a running channel whose reader is given to a function in a child."""
    spills, _, medium = kind.rpartition(" ")

    def read(reader: Reader) -> object:
        return body(Spilling(reader, MEMORY, folder) if spills else reader)

    if medium == "shm":
        ring = SharedRing(CAPACITY)
        child = Child(lambda: read(ring.reader()))
        writer = ring.writer()
    else:
        port, out = os.pipe()
        theirs, ours = contexts("ours") if medium == "tls" else (None, None)

        def listen() -> object:
            with Listener("127.0.0.1", SECRET, theirs) as listener:
                os.write(out, listener.address.encode())
                return read(listener.accept(["it"], 30)["it"])

        child = Child(listen)
        writer = connect(os.read(port, 100).decode(), SECRET, "it", 30, ours)
        os.close(port)
        os.close(out)
    try:
        yield writer, child
    finally:
        writer.fail("the test is over")
        child.kill()


def write_file(path: Path, body: Callable[[Writer], object]) -> object:
    """Call a function with the writer of the middle one of three streams of a file."""
    with FileWriter(path, 3) as file:
        file.part(0).write("of another copy")
        return body(file.part(1))
