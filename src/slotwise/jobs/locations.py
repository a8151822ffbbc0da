"""Which hosts hold which bytes of a file: from HDFS, or from a function of the user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

from slotwise.core.errors import InputError

# What a user states for `input_hosts`, as a function that finds the blocks of a file.

AUTO = "auto"

REMOVED = "moosefs"
"""A name in files that were written when this package asked MooseFS itself."""

REMEDY = (
    'give lists of names of hosts by path, such as {"a.txt": ["host-1"]}, or auto,'
    " webhdfs://namenode:9870 or path/to/file.py:function"
)


def is_function(stated: str) -> bool:
    """Whether this names a function in a file."""
    return ".py:" in stated


def check_name(stated: str) -> None:
    """InputError for a string that names no source of locations."""
    if stated == REMOVED:
        raise InputError(
            f"input_hosts is {stated!r}, which is not part of slotwise; copy"
            " experiments/locators.py from its sources and give path/to/locators.py:moosefs"
        )
    if stated != AUTO and not is_function(stated):
        if stated.partition("://")[0] not in SCHEMES:
            raise InputError(f"input_hosts is {stated!r:.80}; {REMEDY}")
        hdfs_locator(stated)


def locator(stated: Any, base_dir: str | Path | None = None) -> Locate:
    """The function for a name that was checked; one that the user gives is used as it is.

    `base_dir` is the folder of relative paths of files with functions. InputError if there is
    no such file or function.
    """
    if callable(stated):
        return stated  # type: ignore[no-any-return]
    if stated == AUTO:
        return _Automatic().locate
    return _function(stated, base_dir) if is_function(stated) else hdfs_locator(stated)


def _function(stated: str, base_dir: str | Path | None) -> Locate:
    from slotwise.jobs.loading import imported  # What only reads splits needs no loader.

    path, _, name = stated.rpartition(":")
    module = imported((Path(base_dir or ".") / path).absolute(), stated, "input_hosts")
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(
            f"input_hosts {stated!r}: the file defines no function {name!r}; correct the name"
        )
    return found  # type: ignore[no-any-return]


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
    """Asks the name node in the URL of each file. Nothing is known of files without one."""

    def __init__(self) -> None:
        self._name_node = cache(hdfs_locator)

    def locate(self, path: str) -> Blocks:
        """The blocks of a file."""
        if path.partition("://")[0] not in SCHEMES:
            return []
        return self._name_node(own_name_node(path))(path)


# Where the bytes of a file are, as every source of it says: offset, length, hosts.

WHOLE = 2**63
"""As a length: to the end of the file, whatever its size."""


class FileBlock(NamedTuple):
    """Some bytes of a file, and the names or addresses of the machines that hold them."""

    offset: int
    length: int
    hosts: frozenset[str]


Locate = Callable[[str], Iterable[tuple[int, int, Iterable[str]]]]
"""The blocks of the file with this path or URL; none, if nothing is known of it."""

Blocks = Sequence[FileBlock]


# Where HDFS keeps the blocks of a file, by the REST interface of its name node.

SCHEMES = {"webhdfs": "http", "swebhdfs": "https"}
PORTS = {"webhdfs": 9870, "swebhdfs": 9871}
"""The ports of name nodes by default, since Hadoop 3."""

SECONDS = 30.0
NO_ANSWER = (AttributeError, KeyError, TypeError, ValueError)
"""What an answer raises that has another form."""


def hdfs_locator(name_node: str) -> Callable[[str], Blocks]:
    """Asks a name node, "webhdfs://host:port" or with a user before it, "user@host:port".

    It is asked for the path of a file's URL: of webhdfs://host:port/path or hdfs://host/path.
    InputError for an address that is none.
    """
    try:
        parts = urlsplit(name_node)
        port = parts.port or PORTS[parts.scheme]
        if not parts.hostname:
            raise ValueError("no host")
    except (KeyError, ValueError):
        raise InputError(
            f"input_hosts is {name_node!r:.80}; give the address of a name node, such as"
            " webhdfs://namenode:9870"
        ) from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    node = _NameNode(f"{SCHEMES[parts.scheme]}://{host}:{port}", unquote(parts.username or ""))
    return node.locate


def own_name_node(path: str) -> str:
    """The address of the name node in the URL of a file."""
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}"


class _NameNode:
    """Answers requests for the blocks of files; the user is empty without one."""

    def __init__(self, address: str, user: str) -> None:
        self._address, self._user = address, user
        # Name nodes are in the own network, where a proxy of the environment does not help.
        self._open = build_opener(ProxyHandler({})).open

    def locate(self, path: str) -> Blocks:
        """The blocks of a file. InputError if they are not known."""
        where = path
        if "://" in path:
            where = "/" + path.partition("://")[2].partition("/")[2]
        try:
            try:
                return _public(self._get(where, "GETFILEBLOCKLOCATIONS"))
            except _UnknownOperationError:
                return _internal(self._get(where, "GET_BLOCK_LOCATIONS"))
        except NO_ANSWER as error:
            raise InputError(
                f"input_hosts: {self._address} does not answer as a name node"
                f" ({type(error).__name__}: {error}); correct the address, or leave out"
                " input_hosts"
            ) from error

    def _get(self, path: str, operation: str) -> Any:
        asked = {"op": operation} | ({"user.name": self._user} if self._user else {})
        url = f"{self._address}/webhdfs/v1{quote(path)}?{urlencode(asked)}"
        try:
            with self._open(url, timeout=SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            says = _exception(error)
            if "parameter" in says and '"op"' in says:
                raise _UnknownOperationError from error
            why = f"{path}: {says}"
        except OSError as error:
            why = str(getattr(error, "reason", error))
        raise InputError(
            f"input_hosts: the name node {self._address}: {why}; correct the address or the"
            " path, or leave out input_hosts"
        )


class _UnknownOperationError(Exception):
    """The name node is older than the operation."""


def _exception(error: HTTPError) -> str:
    """What a name node says of an error."""
    try:
        return str(json.load(error)["RemoteException"]["message"])
    except NO_ANSWER:
        return f"HTTP status {error.code} ({error.reason})"


def _public(answer: Mapping[str, Any]) -> Blocks:
    """The answer of Hadoop 3.1 and later: hosts by name, and their addresses with ports."""
    return [
        FileBlock(
            int(block["offset"]),
            int(block["length"]),
            frozenset([*block["hosts"], *(_host(name) for name in block.get("names", ()))]),
        )
        for block in answer["BlockLocations"]["BlockLocation"]
        if not block.get("corrupt")
    ]


def _internal(answer: Mapping[str, Any]) -> Blocks:
    """The answer that the clients of earlier versions get."""
    return [
        FileBlock(
            int(one["startOffset"]),
            int(one["block"]["numBytes"]),
            frozenset(node[key] for node in one["locations"] for key in ("hostName", "ipAddr")),
        )
        for one in answer["LocatedBlocks"]["locatedBlocks"]
        if not one.get("isCorrupt")
    ]


def _host(name: str) -> str:
    """The host of "10.0.0.3:9866" or "[fe80::1]:9866"."""
    return name.rpartition(":")[0].strip("[]")
