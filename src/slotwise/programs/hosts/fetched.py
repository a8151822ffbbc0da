"""Files that tasks have left on other hosts, fetched for a task on this one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from slotwise.programs.hosts.files import MissingFilesError, Wanted, fetch
from slotwise.programs.hosts.outputs import Output, is_here, lost_of
from slotwise.programs.hosts.security import reader_security
from slotwise.programs.shuffle.partitioned import PartitionedWriter, Place

PAUSES = (0.2, 1.0)
"""Seconds before another try to fetch from a host that cannot be reached."""


def fetched(
    outputs: Sequence[Output], count: int, copies: Path, *, may_cut: bool
) -> list[Place]:
    """The same files, with those of other hosts copied: a file for each of these hosts.

    `copies` begins the names of these files. LostInputError if files are missing, or their host
    cannot be reached.
    """
    places: list[Place] = [(output.path, output.part) for output in outputs]
    others: dict[str, list[int]] = {}
    for number, output in enumerate(outputs):
        if not is_here(output.address):
            others.setdefault(output.address, []).append(number)
    for host, numbers in enumerate(others.values()):
        path = copies.with_name(f"{copies.name}-{host}")
        _fetch([outputs[number] for number in numbers], count, path, may_cut)
        for place, number in enumerate(numbers):
            places[number] = path, place * count
    return places


def _fetch(outputs: Sequence[Output], count: int, path: Path, may_cut: bool) -> None:
    """Copy the parts of these files of one host into a file: those of one after another."""
    address, job = outputs[0].address, outputs[0].path.parent.parent.name
    wanted = [
        Wanted(output.path.parent.name, output.path.name, output.part, count)
        for output in outputs
    ]
    for pause in (*PAUSES, None):
        try:
            with PartitionedWriter(path, len(wanted) * count) as copy:
                chunks = fetch(address, reader_security(), job, wanted, may_cut=may_cut)
                for file, part, chunk in chunks:
                    copy.append(file * count + part, chunk)
            return
        except MissingFilesError as error:
            lost = lost_of(outputs[number] for number in error.numbers)
            assert lost is not None
            raise lost from error
        except (ConnectionError, TimeoutError) as error:
            if pause is None:
                lost = lost_of(outputs)
                assert lost is not None
                raise lost from error
            time.sleep(pause)
