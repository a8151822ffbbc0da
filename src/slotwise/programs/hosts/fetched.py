"""Files that tasks have left on other hosts, fetched for a task on this one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from slotwise.programs.hosts.files import MissingFilesError, Wanted, fetch
from slotwise.programs.hosts.greeting import SilentError
from slotwise.programs.hosts.here import is_local
from slotwise.programs.hosts.security import reader_security
from slotwise.programs.hosts.task_files import TaskFile, lost_of
from slotwise.programs.shuffle.partitioned import PartitionedWriter, Place
from slotwise.programs.work_folder import keeping

PAUSES = (0.2, 1.0)
"""Seconds before another try to fetch from a host that cannot be reached.

There is none for a host that is silent: the next task that reads from it may try again.
"""


def fetched(files: Sequence[TaskFile], count: int, copies: Path) -> list[Place]:
    """The same files, with those of other hosts copied: a file for each of these hosts.

    `copies` begins the names of these files. LostInputError if files are missing, or their host
    cannot be reached.
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
    """Copy the parts of these files of one host into a file: those of one after another."""
    address, job = files[0].address, files[0].path.parent.parent.name
    wanted = [Wanted(file.path.parent.name, file.path.name, file.part, count) for file in files]
    for pause in (*PAUSES, None):
        try:
            with PartitionedWriter(path, len(wanted) * count) as copy:
                written = fetch(address, reader_security(), job, wanted, copy.descriptor)
                with keeping(path.parent):
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
