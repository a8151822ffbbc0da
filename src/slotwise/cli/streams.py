"""Standard output and error of the command: full disks, closed pipes, odd characters."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from slotwise.model.errors import SlotwiseError


class StdoutError(SlotwiseError):
    """Standard output takes no more."""


def guard_streams() -> None:
    """Make StdoutError of what cannot be written to stdout, and drop what stderr does not take.

    A reader of stdout that closes its pipe has seen enough: the rest is dropped. Characters
    that the encoding lacks are written as escapes.
    """
    sys.stdout = _stream(_Stdout, 1, sys.stdout)
    sys.stderr = _stream(_Stderr, 2, sys.stderr)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[attr-defined]


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # What is still in buffers is not to fail again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                return len(data)
            raise StdoutError(
                f"standard output: {error.strerror}; send it to a place with room for it"
            ) from error


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _stream(kind: type[io.FileIO], file: int, before: TextIO | None) -> TextIO:
    """A text stream like the one that the interpreter made; None if the file is closed."""
    if before is None:
        return open(os.devnull, "w")
    raw = kind(file, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        before.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )
