"""The input of a job at planning time: its files, their splits, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError
from slotwise.core.job import Block
from slotwise.jobs.formats import inputs as formats
from slotwise.jobs.formats.files import InputFile, find_inputs
from slotwise.jobs.formats.splits import HeldBy, Split, SplitPiece, pack
from slotwise.jobs.locations import (
    REMEDY,
    WHOLE,
    FileBlock,
    Locate,
    check_name,
    located,
    locator,
)

SPLIT_BYTES = 64 << 20
"""The default of `split_bytes`."""


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """Input files, or numbers of records of `record_bytes` that a program generates."""

    files: Sequence[InputFile]
    format_name: str
    record_bytes: int = 1

    @classmethod
    def of_files(
        cls, patterns: Sequence[str], format_name: str, base_dir: str | Path | None
    ) -> PlannedInput:
        """Return the files of these patterns. InputError for no match or unknown format."""
        formats.input_format(format_name)
        return cls(find_inputs(patterns, base_dir), format_name)

    @classmethod
    def of_numbers(cls, count: int, record_bytes: int) -> PlannedInput:
        """Return the numbers from 0 below `count`."""
        return cls([InputFile("records", count)], formats.NUMBERS, record_bytes)

    def splits(self, split_bytes: int) -> list[Split]:
        """Return the split of each task that reads."""
        size = max(1, split_bytes // self.record_bytes)
        return pack(self._pieces(size), size)

    def sample(self, most: int, least_bytes: int) -> list[SplitPiece]:
        """Return at most `most` pieces, spread evenly over the input."""
        total = sum(file.size_bytes for file in self.files)
        pieces = list(self._pieces(max(total // most, least_bytes)))
        return pieces[:: len(pieces) // most + 1]

    def bytes_of(self, split: Split) -> int:
        """Return the bytes of a split."""
        return self.record_bytes * sum(piece.size_bytes for piece in split)

    def _pieces(self, size: int) -> Iterable[SplitPiece]:
        format = formats.input_format(self.format_name)
        return (piece for file in self.files for piece in format.pieces(file, size))


# Which hosts hold the bytes of input files: tasks that read them belong there.

InputHosts = Mapping[str, Sequence[str]] | str | Locate | None
"""Values of `input_hosts`: hosts by path, the name of a source of locations, or a function."""


def held_by(
    stated: Any, files: Iterable[InputFile], base_dir: str | Path | None = None
) -> HeldBy:
    """Return the blocks of input files, with stated hosts (by path, glob or folder) or located.

    A file that matches several patterns has the hosts of all. Raises InputError for a pattern
    without files, and for locations that cannot be found.
    """
    stated = checked(stated)
    if not isinstance(stated, Mapping):
        locate = locator(stated, base_dir)
        return {file.path: located(file.path, locate) for file in files}
    found: dict[str, frozenset[str]] = {}
    for pattern, hosts in stated.items():
        for file in find_inputs([pattern], base_dir):
            found[file.path] = found.get(file.path, frozenset()) | frozenset(hosts)
    return {path: [FileBlock(0, WHOLE, hosts)] for path, hosts in found.items()}


def checked(stated: Any) -> Mapping[str, tuple[str, ...]] | str | Callable[..., Any]:
    """Return a valid value of `input_hosts`, with paths as strings, or raise InputError."""
    if stated is None:
        return {}
    if isinstance(stated, str):
        check_name(stated)
        return stated
    if callable(stated):
        return stated  # type: ignore[no-any-return]
    if not isinstance(stated, Mapping):
        raise InputError(f"input_hosts is {stated!r:.80}; {REMEDY}")
    for path, hosts in stated.items():
        is_list = isinstance(hosts, Iterable) and not isinstance(hosts, str | bytes | Mapping)
        if not is_list or not all(isinstance(host, str) for host in hosts):
            raise InputError(f"input_hosts: {str(path)!r} has {hosts!r:.80}; {REMEDY}")
    return {str(path): tuple(hosts) for path, hosts in stated.items()}


def blocks(held: Sequence[Mapping[str, int]], cluster: Cluster | None) -> tuple[Block, ...]:
    """Return a block for each task, from the bytes of its input on each host or machine.

    The homes of a task are the hosts with the most bytes, and this maximum is the size of the
    block. Empty if no host of the cluster holds input.
    """
    if cluster is not None:
        held = [_on_hosts(one, cluster) for one in held]
    found = tuple(_block(one) for one in held)
    known = None if cluster is None else {host.name for host in cluster.hosts}
    named = frozenset().union(*(block.hosts for block in found))
    return () if not named or (known is not None and known.isdisjoint(named)) else found


def _on_hosts(held: Mapping[str, int], cluster: Cluster) -> Mapping[str, int]:
    """Convert bytes by machine to bytes by host; unchanged if no name is known.

    The bytes of a machine with several names or addresses are counted once.
    """
    if not any(host.addresses for host in cluster.hosts):
        return held
    found: dict[str, int] = {}
    for name, size in held.items():
        for host in cluster.at(name) or (name,):
            found[host] = max(size, found.get(host, 0))
    known = {name: size for name, size in found.items() if name in cluster.by_name}
    return known or found


def _block(held: Mapping[str, int]) -> Block:
    most = max(held.values(), default=0)
    return Block(frozenset(host for host, size in held.items() if size == most), most)
