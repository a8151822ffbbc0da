"""The streams and signals of the command, without the modules that parse and print.

They handle full disks, closed pipes and unencodable characters on stdout and stderr.
"""

from __future__ import annotations

import io
import os
import select
import sys
from types import FrameType
from typing import Any, TextIO

from slotwise.core.errors import SlotwiseError


class StdoutError(SlotwiseError):
    """Writing to standard output failed."""


def guard_streams() -> None:
    """Raise StdoutError for failed writes to stdout; ignore failed writes to stderr.

    If the reader of stdout closes its pipe, the rest of the output is dropped without an error.
    Characters that the encoding lacks are written as escapes.
    """
    sys.stdout = _stream(_Stdout, 1, sys.stdout)
    sys.stderr = _stream(_Stderr, 2, sys.stderr)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[attr-defined]


def has_reader() -> bool:
    """Whether what is written to stdout may still be read: no pipe was closed at its end."""
    poll = select.poll()
    poll.register(1, 0)
    return not (_Stdout.is_dropped or any(seen & select.POLLERR for _, seen in poll.poll(0)))


class _Stdout(io.FileIO):
    is_dropped = False  # Whether the reader has closed the pipe.

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # Buffered data must not fail again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                _Stdout.is_dropped = True
                return len(data)
            raise StdoutError(
                f"standard output: {error.strerror}; redirect it to a place with free space"
            ) from error


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _stream(kind: type[io.FileIO], file: int, before: TextIO | None) -> TextIO:
    """Return a stream in place of `before`; it writes to /dev/null if that is closed."""
    if before is None:
        return open(os.devnull, "w")
    raw = kind(file, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        before.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )


def leave(number: int, frame: FrameType | None) -> None:
    """End the process. Installed only while nothing has started or everything is done."""
    os.write(2, b"slotwise: interrupted\n")
    os._exit(130)
