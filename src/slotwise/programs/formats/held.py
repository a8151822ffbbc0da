"""Which hosts hold input files, as users state it, and so where tasks that read them belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Block
from slotwise.programs.formats.files import find_inputs
from slotwise.programs.formats.splits import HeldBy


def held_by(stated: Any, base_dir: str | Path | None = None) -> HeldBy:
    """The hosts of each file, from hosts stated for paths, globs or folders.

    A file of several patterns has the hosts of all. InputError for a pattern without files.
    """
    found: dict[str, frozenset[str]] = {}
    for pattern, hosts in checked(stated).items():
        for file in find_inputs([pattern], base_dir):
            found[file.path] = found.get(file.path, frozenset()) | frozenset(hosts)
    return found


def checked(stated: Any) -> Mapping[str, tuple[str, ...]]:
    """What a user states for `input_hosts`, with paths as texts. InputError if it is wrong."""
    if stated is None:
        return {}
    remedy = 'give lists of names of hosts by path, such as {"a.txt": ["host-1"]}'
    if not isinstance(stated, Mapping):
        raise InputError(f"input_hosts is {stated!r:.80}; {remedy}")
    for path, hosts in stated.items():
        is_list = isinstance(hosts, Iterable) and not isinstance(hosts, str | bytes | Mapping)
        if not is_list or not all(isinstance(host, str) for host in hosts):
            raise InputError(f"input_hosts: {str(path)!r} has {hosts!r:.80}; {remedy}")
    return {str(path): tuple(hosts) for path, hosts in stated.items()}


def blocks(held: Sequence[Mapping[str, int]], cluster: Cluster | None) -> tuple[Block, ...]:
    """A block for each task, from the bytes of its input on each host.

    The homes of a task are the hosts with the most bytes, which are the size of its block.
    Without any block, if no host of the cluster holds input.
    """
    found = tuple(_block(one) for one in held)
    known = None if cluster is None else {host.name for host in cluster.hosts}
    named = frozenset().union(*(block.hosts for block in found))
    return () if not named or (known is not None and known.isdisjoint(named)) else found


def _block(held: Mapping[str, int]) -> Block:
    most = max(held.values(), default=0)
    return Block(frozenset(host for host, size in held.items() if size == most), most)
