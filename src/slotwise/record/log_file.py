"""Writing a log to a file, turn by turn."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slotwise.model.decision import Decision
from slotwise.model.errors import InputError
from slotwise.model.event import Event
from slotwise.model.typed import NUMBER, WHOLE
from slotwise.opening import open_to_write
from slotwise.record.log import MARK, FileTurns, Header, Log, Turn, telling
from slotwise.record.own_files import refuse_foreign

logger = logging.getLogger("slotwise")


def check_log(path: str | Path) -> None:
    """InputError if a log must not be written here because the file exists and is no log."""
    refuse_foreign(path, MARK, f"log {str(path)!r}")


def check_writable(path: str | Path) -> None:
    """InputError if a log cannot be written here now. The file is made if it is missing."""
    _open(path).close()


class LogFile:
    """A log on disk: a record for the loop that writes each turn as it comes.

    An earlier log is replaced. InputError if another run is still writing it, or if the file
    exists and is no log. While it is open, no other run can write to it. A turn of a live run
    is in the file at once, so that it can be read while the run goes on, and survives a kill.

    A live run whose log cannot be written any more goes on without it, because others wait for
    its work. A warning is logged at once, and the end of the context raises the InputError.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self._path, self._header = path, header
        self.has_begun = False  # Until then, the file has an earlier log.
        self._error: InputError | None = None
        self._file = _open(path)
        self.is_kept = os.path.isfile(path)  # Unlike a pipe or a device.

    def log(self) -> Log:
        """The log that was written, with its turns to be read from the file."""
        return Log(self._header, FileTurns(self._path, self._header))

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Write one turn; before the first, empty the file and write the header."""
        if self._error is not None:
            return
        try:
            self._begin()
            self._write(Turn(now, events, decisions).to_plain())
        except InputError as error:
            if self._header.backend != "live":
                raise
            self._error = error
            logger.warning("slotwise: the run goes on without its log: %s", error)

    def _begin(self) -> None:
        # Not earlier: a run that fails validation must keep the previous log.
        if not self.has_begun:
            with telling(self._path):
                if self.is_kept:
                    self._file.truncate(0)
            self._write(self._header.to_plain())
            self.has_begun = True

    def _write(self, plain: dict[str, Any]) -> None:
        with telling(self._path):
            line = json.dumps(plain, separators=(",", ":"), default=_number)
            self._file.write(line + "\n")
            if self._header.backend == "live":
                self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._error is not None:
            with suppress(OSError):
                self._file.close()
            if kind is None:
                raise self._error
            return
        if kind is None:
            self._begin()
        with telling(self._path):
            self._file.close()


def _open(path: str | Path) -> TextIOWrapper:
    """Open the file of a log for appending; it is locked for as long as it is open."""
    check_log(path)
    with telling(path):
        file = TextIOWrapper(open_to_write(path, is_emptied=False), encoding="utf-8")
        if os.path.isfile(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"log {str(path)!r} is being written by another run; name another file"
                ) from None
    return file


def _number(value: object) -> float:
    """A number of another type, such as one of NumPy, as it is written in JSON."""
    if isinstance(value, WHOLE):
        return int(value)
    if isinstance(value, NUMBER):
        return float(value)
    raise TypeError(f"a log cannot hold {value!r}")
