"""What a user states for `input_hosts`, as a function that finds the blocks of a file."""

from __future__ import annotations

from functools import cache
from typing import Any

from slotwise.model.errors import InputError
from slotwise.programs.locations import moosefs, mounts, webhdfs
from slotwise.programs.locations.block import WHOLE, Blocks, FileBlock, Locate

AUTO, MOOSEFS = "auto", "moosefs"

REMEDY = (
    'give lists of names of hosts by path, such as {"a.txt": ["host-1"]}, or auto, moosefs or'
    " webhdfs://namenode:9870"
)


def check_name(stated: str) -> None:
    """InputError for a text that names no source of locations."""
    if stated not in (AUTO, MOOSEFS):
        if stated.partition("://")[0] not in webhdfs.SCHEMES:
            raise InputError(f"input_hosts is {stated!r:.80}; {REMEDY}")
        webhdfs.locator(stated)


def locator(stated: Any) -> Locate:
    """The function for a name that was checked; one that the user gives is used as it is."""
    if callable(stated):
        return stated  # type: ignore[no-any-return]
    if stated == MOOSEFS:
        return moosefs.locate
    return _Automatic().locate if stated == AUTO else webhdfs.locator(stated)


def located(path: str, locate: Locate) -> Blocks:
    """The blocks of a file. InputError if a function of the user returns something else."""
    found = locate(path)
    try:
        return [FileBlock(int(at), int(length), _names(hosts)) for at, length, hosts in found]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"input_hosts: the function returned {found!r:.80} for {path!r}; let it return a"
            " list of (offset, length, names of hosts)"
        ) from error


def _names(hosts: Any) -> frozenset[str]:
    if isinstance(hosts, str) or not all(isinstance(host, str) for host in hosts):
        raise TypeError
    return frozenset(hosts)


class _Automatic:
    """Finds the source of the locations of each file by its URL, or its mount."""

    def __init__(self) -> None:
        self._mounts = mounts.mounts()
        self._name_node = cache(webhdfs.locator)

    def locate(self, path: str) -> Blocks:
        """The blocks of a file on WebHDFS, MooseFS or a mount from one machine."""
        if "://" in path:
            if path.partition("://")[0] not in webhdfs.SCHEMES:
                return []
            return self._name_node(webhdfs.own_name_node(path))(path)
        mount = mounts.mount_of(path, self._mounts)
        if mount is None:
            return []
        if mount.is_moosefs:
            return moosefs.locate(path)
        return [FileBlock(0, WHOLE, frozenset([mount.host]))] if mount.host else []
