"""The record of who changed what, who logged in, and what was refused: a file of JSON lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

AUDIT_BYTES_MAX = 32 << 20
"""The size after which a file is set aside as NAME.1, in place of an earlier one."""

TEXT_MAX = 300
"""The most characters of a string in a line."""

JOBS_MAX = 20
"""The most jobs that a line names; it also has their number."""


JOBS_BYTES_MAX = 1000
"""The most bytes of the names of jobs in a line."""


class AuditLog:
    """Appends lines to a file, which only its owner can read. For one thread."""

    def __init__(self, path: Path, bytes_max: int = AUDIT_BYTES_MAX) -> None:
        """Open the file. OSError if that is not possible."""
        self._path, self._bytes_max = path, bytes_max
        self._open()

    def write(
        self, user: str | None, address: str, action: str, outcome: str, **about: Any
    ) -> None:
        """Append a line. On a full disk it is lost, and the request is answered all the same.

        Control characters, as those that move the cursor of a terminal, are escaped.
        """
        if jobs := about.get("jobs"):
            about = {**about, "jobs": _first(jobs), "count": len(jobs)}
        line = {
            "at": round(time.time(), 3),
            "user": user,
            "address": address,
            "action": action[:TEXT_MAX],
            "outcome": outcome,
            **about,
        }
        data = json.dumps(line, default=str).encode() + b"\n"
        try:
            if self._size + len(data) > self._bytes_max:
                self._set_aside()
            os.write(self._file, data)
            self._size += len(data)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, how, 0o600)
        self._size = os.fstat(self._file).st_size

    def _set_aside(self) -> None:
        os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
        os.close(self._file)
        self._open()


def _first(jobs: Sequence[str]) -> list[str]:
    """The first jobs, as many as a line names; at least one."""
    sizes = accumulate(len(json.dumps(job)) for job in jobs[:JOBS_MAX])
    count = sum(size <= JOBS_BYTES_MAX for size in sizes)
    return list(jobs[: max(1, count)])
