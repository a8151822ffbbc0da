"""Files that tasks write for later tasks, on this host or on others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from slotwise.jobs.blocks import PartitionedWriter, Place, is_complete
from slotwise.jobs.execution import CHANGED, LostInputError
from slotwise.jobs.hosts.auth import SilentError, reader_security
from slotwise.jobs.hosts.files import MissingFilesError, Wanted, fetch
from slotwise.jobs.hosts.sockets import is_local
from slotwise.jobs.work_folder import work_folder_errors


class TaskFile(NamedTuple):
    """A file of an attempt of a task, for a task that reads parts of it.

    address  the address that serves it; empty if all hosts see it
    part     the first part to read
    """

    phase: str
    task: int
    attempt: int
    address: str
    path: Path
    part: int

    @property
    def place(self) -> str:
        """The position of the file, for messages."""
        if is_local(self.address):
            return str(self.path)
        return f"{self.path.parent.name}/{self.path.name} at {self.address}"


def lost_local_files(files: Iterable[TaskFile]) -> LostInputError | None:
    """Return the error for lost files on this host, or None. Raises OSError.

    Lost files of other hosts are detected when they are fetched.
    """
    local = (file for file in files if is_local(file.address))
    return lost_of(file for file in local if not is_complete(file.path))


def lost_of(lost: Iterable[TaskFile], why: str = CHANGED) -> LostInputError | None:
    """Return the error for lost files and the reason, or None if there are no files.

    It names the files of one phase. The next attempt finds those of others.
    """
    by_phase: dict[str, list[tuple[int, int, str | Path]]] = {}
    for file in lost:
        found = by_phase.setdefault(file.phase, [])
        found.append((file.task, file.attempt, file.place))
    errors = (LostInputError.of(phase, found, why) for phase, found in by_phase.items())
    return next(errors, None)


# Fetching files of tasks on other hosts for a task on this one.

PAUSES = (0.2, 1.0)
"""Seconds before retries to fetch from an unreachable host.

For a silent host there are no retries; the next task that reads from it tries again.
"""


def fetched(files: Sequence[TaskFile], count: int, copies: Path) -> list[Place]:
    """Fetch `count` parts of the files of other hosts; return where the parts of all files are.

    A copy has the parts from one host, and a name that begins with `copies`. Raises
    LostInputError if files are missing or their host cannot be reached.
    """
    places: list[Place] = [(file.path, file.part) for file in files]
    others: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        if not is_local(file.address):
            others.setdefault(file.address, []).append(number)
    for host, numbers in enumerate(others.values()):
        path = copies.with_name(f"{copies.name}-{host}")
        _fetch([files[number] for number in numbers], count, path)
        for place, number in enumerate(numbers):
            places[number] = path, place * count
    return places


def _fetch(files: Sequence[TaskFile], count: int, path: Path) -> None:
    """Copy the parts of files of one host into a file, in order of the files."""
    address, job = files[0].address, files[0].path.parent.parent.name
    wanted = [Wanted(file.path.parent.name, file.path.name, file.part, count) for file in files]
    for pause in (*PAUSES, None):
        try:
            with PartitionedWriter(path, len(wanted) * count) as copy:
                written = fetch(address, reader_security(), job, wanted, copy.descriptor)
                with work_folder_errors(path.parent):
                    for number, parts in enumerate(written):
                        for part, sizes in enumerate(parts, number * count):
                            copy.has_written(part, sizes)
            return
        except MissingFilesError as error:
            lost = lost_of(files[number] for number in error.numbers)
            assert lost is not None
            raise lost from error
        except ConnectionError as error:
            if pause is None or isinstance(error, SilentError):
                lost = lost_of(files, f"cannot be fetched: {error}")
                assert lost is not None
                raise lost from error
            time.sleep(pause)


# Where a task reads the files of other tasks.


def in_place(files: Sequence[TaskFile], count: int, copies: Path) -> Iterator[Place]:
    """Yield where `count` parts of each file are. Those of other hosts are fetched first.

    The names of their copies begin with `copies`. Raises LostInputError if files of other hosts
    are missing or these hosts cannot be reached.
    """
    if all(is_local(file.address) for file in files):
        yield from ((file.path, file.part) for file in files)
        return
    # Imported here because importing ssl takes long.

    yield from fetched(files, count, copies)
