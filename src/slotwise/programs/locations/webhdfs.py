"""Where HDFS keeps the blocks of a file, by the REST interface of its name node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

from slotwise.model.errors import InputError
from slotwise.programs.locations.block import Blocks, FileBlock

SCHEMES = {"webhdfs": "http", "swebhdfs": "https"}
PORTS = {"webhdfs": 9870, "swebhdfs": 9871}
"""The ports of name nodes by default, since Hadoop 3."""

SECONDS = 30.0
NO_ANSWER = (AttributeError, KeyError, TypeError, ValueError)
"""What an answer raises that has another form."""


def locator(name_node: str) -> Callable[[str], Blocks]:
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
