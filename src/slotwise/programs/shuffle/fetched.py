"""Map output of other hosts, fetched for a reduce."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from slotwise.programs.hosts.files import MissingFileError, Wanted, fetch
from slotwise.programs.hosts.here import address_here
from slotwise.programs.hosts.security import reader_security
from slotwise.programs.lost_input import LostInputError
from slotwise.programs.mapreduce.layout import MapReduceLayout
from slotwise.programs.shuffle.partitioned import PartitionedWriter, Place

PAUSES = (0.2, 1.0)
"""Seconds before another try to fetch from a host that cannot be reached."""


def fetched(
    layout: MapReduceLayout,
    attempts: Sequence[int],
    addresses: Sequence[str],
    folder: Path,
    task: int,
    buckets: int,
) -> Iterable[Place]:
    """The partitions of a reduce in the output of all maps, in map order.

    What is on other hosts is copied into `folder`, a file for each of them. LostInputError if
    map output is missing, or its host cannot be reached.
    """
    here = address_here()
    others: dict[str, list[int]] = {}
    for number, address in enumerate(addresses):
        if address not in ("", here):
            others.setdefault(address, []).append(number)
    places: dict[int, Place] = {}
    for count, (address, numbers) in enumerate(others.items()):
        path = folder / f"fetched-{count}"
        wanted = [
            Wanted(file.parent.name, file.name, task * buckets, buckets)
            for file in (layout.map_file(number, attempts[number]) for number in numbers)
        ]
        _fetch(address, layout.folder.name, wanted, path, numbers, attempts)
        for place, number in enumerate(numbers):
            places[number] = path, place * buckets
    for number, attempt in enumerate(attempts):
        yield places.get(number) or (layout.map_file(number, attempt), task * buckets)


def _fetch(
    address: str,
    job: str,
    wanted: Sequence[Wanted],
    path: Path,
    numbers: Sequence[int],
    attempts: Sequence[int],
) -> None:
    """Copy these partitions from a host into a file: those of one map after another."""
    buckets = wanted[0].partitions
    for pause in (*PAUSES, None):
        try:
            with PartitionedWriter(path, len(wanted) * buckets) as copy:
                written = fetch(address, reader_security(), job, wanted, copy.descriptor)
                for file, partitions in enumerate(written):
                    for partition, sizes in enumerate(partitions, file * buckets):
                        copy.has_written(partition, sizes)
            return
        except MissingFileError as error:
            raise _lost([numbers[error.number]], attempts, address) from error
        except (ConnectionError, TimeoutError) as error:
            if pause is None:
                raise _lost(numbers, attempts, address) from error
            time.sleep(pause)


def _lost(numbers: Sequence[int], attempts: Sequence[int], address: str) -> LostInputError:
    lost = [(number, attempts[number], f"map output at {address}") for number in numbers]
    found = LostInputError.of("map", lost)
    assert found is not None
    return found
