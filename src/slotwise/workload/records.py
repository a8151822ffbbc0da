"""Records of text files, such as traces: what goes wrong is named with its file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, TypeVar

from slotwise.core.errors import InputError, shown
from slotwise.core.files import open_to_read
from slotwise.core.job import Job

R = TypeVar("R")
T = TypeVar("T")


@contextmanager
def opened(path: Path, what: str, **options: Any) -> Iterator[TextIO]:
    """Open a text file, which should be `what`. InputError if it cannot be read."""
    try:
        with TextIOWrapper(open_to_read(path), encoding="utf-8-sig", **options) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name {what}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8; name {what}") from error


def read_records(
    path: Path,
    records: Iterable[tuple[int, R]],
    made: Callable[[R], tuple[str, T] | str],
    id: str,
    first: int | None = None,
) -> tuple[dict[str, T], Counter[str]]:
    """What is made of the records of a file by name, or of its `first` ones, in their order.

    Of each record, with the number of its line, comes a name and a value, or the reason why it
    is left out; these are counted. InputError with file and line, also for a name that occurs
    twice, which the message calls `id`.
    """
    if first is not None and first < 1:
        raise InputError(f"first is {first}; give a number of jobs, at least 1")
    found, left_out = dict[str, T](), Counter[str]()
    for line, record in records:
        if len(found) == first:
            break
        try:
            one = made(record)
            if isinstance(one, str):
                left_out[one] += 1
                continue
            name, value = one
            if name in found:
                raise InputError(f"{id} {shown(name)} occurs twice; rename one")
        except InputError as error:
            raise InputError(f"{path}: line {line}: {error}") from error
        found[name] = value
    return found, left_out


def from_first_arrival(jobs: Mapping[str, Job]) -> tuple[Job, ...]:
    """The jobs, of which there is one at least, on a clock that begins when the first comes."""
    start = min(job.arrival for job in jobs.values())
    return tuple(replace(job, arrival=job.arrival - start) for job in jobs.values())
