"""MapReduce programs by records as two nodes of a dataflow (Hammr, section 7.2)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from slotwise.model.errors import InputError
from slotwise.programs.loading import AnyProgram
from slotwise.programs.mapreduce.program import MapReduce, Pair
from slotwise.programs.shuffle.buffers import buffer_for
from slotwise.programs.shuffle.pairs import PairStream

BUFFER_BYTES = 64 << 20
"""The memory in which a map collects and combines pairs before it writes them."""

key_of = itemgetter(0)
"""The key of a pair."""


class MapNode:
    """Maps the records of a stream; the pairs of a key are combined as far as they fit."""

    def __init__(self, program: MapReduce) -> None:
        self._program = program

    def __call__(self, records: Iterable[Any]) -> Iterator[Pair]:
        """The pairs. The program gets None as the key of each record."""
        program = self._program
        buffer = buffer_for(program, BUFFER_BYTES)
        results = (program.map(None, record) for record in records)
        for keys, values in PairStream(results, f"map of {program.name}", BUFFER_BYTES // 32):
            buffer.add(keys, values)
            if buffer.is_full():
                yield from _pairs(buffer.drain(in_order=False))
        yield from _pairs(buffer.drain(in_order=False))


class ReduceNode:
    """Reduces pairs that are sorted by key."""

    def __init__(self, program: MapReduce) -> None:
        self._program = program

    def __call__(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The output pairs of all keys."""
        program = self._program
        add = getattr(program, "add", None)
        results = (
            program.reduce(key, (value for _, value in group))
            if add is None
            else program.reduce(key, iter((functools.reduce(add, (v for _, v in group)),)))
            for key, group in groupby(pairs, key_of)
        )
        return _pairs(PairStream(results, f"reduce of {program.name}", BUFFER_BYTES // 32))


def checked(program: AnyProgram, reducers: int) -> MapReduce:
    """The program; InputError for one that decides more than two nodes and a sort can do."""
    name = program.name
    if not isinstance(program, MapReduce):
        raise InputError(
            f"map_reduce: {name} maps batches; make it nodes that read and write tables, or a"
            " job of its own (slotwise.mapreduce)"
        )
    if program.num_reducers not in (None, reducers):
        raise InputError(
            f"map_reduce: {name} has {program.num_reducers} reducers; give"
            f" reducers={program.num_reducers}"
            if program.num_reducers
            else f"map_reduce: {name} has no reduces; make its map a node"
        )
    own = [n for n in ("partition", "sort_key") if _is_own(program, n)]
    own += [n for n in ("total_order", "descending") if getattr(program, n)]
    if own:
        raise InputError(
            f"map_reduce: {name} defines {own[0]}, which streams of a dataflow do not have; run"
            " it as a job of its own (slotwise.mapreduce)"
        )
    return program


def _is_own(program: MapReduce, method: str) -> bool:
    return getattr(type(program), method) is not getattr(MapReduce, method)


def _pairs(columns: Iterable[Any]) -> Iterator[Pair]:
    return chain.from_iterable(zip(keys, values, strict=True) for keys, values in columns)
