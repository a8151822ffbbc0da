"""What a task of a job of stages reports."""

from __future__ import annotations

from typing import NamedTuple


class TaskResult(NamedTuple):
    """The report of a task: records written, and bytes of its output for other tasks.

    `copying` is the seconds for which it copied that of other tasks or waited for them.
    `address` is where other hosts fetch its output for other tasks; empty if they see it.
    """

    records: int
    bytes: int
    copying: float = 0.0
    address: str = ""
