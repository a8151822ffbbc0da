"""Sort the records of a reader by a key, in bounded memory."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from slotwise.programs.shuffle.sizes import column_bytes
from slotwise.programs.transfer import pickled
from slotwise.programs.work_folder import keeping

SLICE_RECORDS = 1024
"""This many records are measured together, and written and read together."""


def in_order(
    records: Iterable[Any], by: Callable[[Any], Any], memory_bytes: int, folder: Path
) -> Iterator[Any]:
    """The records sorted by by(record); equal ones keep their order.

    Sorted runs of about `memory_bytes` are merged from files without names in `folder`.
    """
    runs: list[BinaryIO] = []
    held: list[Any] = []
    size = 0
    stream = iter(records)
    while some := list(islice(stream, SLICE_RECORDS)):
        held += some
        size += column_bytes(some)
        if size >= memory_bytes:
            runs.append(_spilled(sorted(held, key=by), folder))
            held, size = [], 0
    held.sort(key=by)
    if not runs:
        yield from held
        return
    yield from merge(*map(_read, runs), held, key=by)


def _spilled(records: list[Any], folder: Path) -> BinaryIO:
    with keeping(folder):
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
    for start in range(0, len(records), SLICE_RECORDS):
        some = pickled(records[start : start + SLICE_RECORDS], None, [])
        with keeping(folder):
            file.write(some)
    with keeping(folder):
        file.seek(0)
    return file


def _read(file: BinaryIO) -> Iterator[Any]:
    with file:
        while True:
            try:
                some = pickle.load(file)
            except EOFError:
                return
            yield from some
