"""Which hosts hold which bytes of a file: from a table, MooseFS, HDFS or a mount."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

from slotwise.core.errors import InputError

# What a user states for `input_hosts`, as a function that finds the blocks of a file.

AUTO, MOOSEFS = "auto", "moosefs"

REMEDY = (
    'give lists of names of hosts by path, such as {"a.txt": ["host-1"]}, or auto, moosefs or'
    " webhdfs://namenode:9870"
)


def check_name(stated: str) -> None:
    """InputError for a text that names no source of locations."""
    if stated not in (AUTO, MOOSEFS):
        if stated.partition("://")[0] not in SCHEMES:
            raise InputError(f"input_hosts is {stated!r:.80}; {REMEDY}")
        hdfs_locator(stated)


def locator(stated: Any) -> Locate:
    """The function for a name that was checked; one that the user gives is used as it is."""
    if callable(stated):
        return stated  # type: ignore[no-any-return]
    if stated == MOOSEFS:
        return locate
    return _Automatic().locate if stated == AUTO else hdfs_locator(stated)


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
        self._mounts = mounts()
        self._name_node = cache(hdfs_locator)

    def locate(self, path: str) -> Blocks:
        """The blocks of a file on WebHDFS, MooseFS or a mount from one machine."""
        if "://" in path:
            if path.partition("://")[0] not in SCHEMES:
                return []
            return self._name_node(own_name_node(path))(path)
        mount = mount_of(path, self._mounts)
        if mount is None:
            return []
        if mount.is_moosefs:
            return locate(path)
        return [FileBlock(0, WHOLE, frozenset([mount.host]))] if mount.host else []


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


# Where MooseFS keeps the chunks of a file, as its tool mfsfileinfo prints it.

COMMAND = "mfsfileinfo"
CHUNK_BYTES = 64 << 20
"""Each chunk of a file but the last has this size."""

MOOSEFS_SECONDS = 30.0

CHUNK = re.compile(r"\s+chunk (\d+):")
COPY = re.compile(r"\s+copy \d+: (\S+?):\w+(?P<rest>.*)")
VALID = re.compile(r"status:\s*VALID\b")


def locate(path: str) -> Blocks:
    """The chunks of a file that have valid copies. InputError if they are not known."""
    try:
        done = subprocess.run(
            [COMMAND, path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOOSEFS_SECONDS,
            check=False,
        )
    except OSError as error:
        raise InputError(
            f"input_hosts: {COMMAND} cannot be run ({error.strerror}); install the client of"
            " MooseFS on this machine (moosefs-client), or leave out input_hosts"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"input_hosts: {COMMAND} has not answered for {MOOSEFS_SECONDS:g} s; is the master"
            " of MooseFS there? Or leave out input_hosts"
        ) from error
    if done.returncode != 0 or (CHUNK.search(done.stdout) is None and done.stderr):
        says = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"input_hosts: {COMMAND} {path!r}: {says[-1] if says else done.returncode}; give"
            " files on MooseFS, or leave out input_hosts"
        )
    return parse_chunks(done.stdout.splitlines())


def parse_chunks(lines: Iterable[str]) -> Blocks:
    """The chunks that mfsfileinfo has printed for one file.

    Versions before 3 print no status. Parts of chunks (erasure coding) are left out: a host
    with one of them has to read the others, too.
    """
    hosts: dict[int, set[str]] = {}
    number = 0
    for line in lines:
        if found := CHUNK.match(line):
            number = int(found[1])
        elif (found := COPY.match(line)) and (
            "status:" not in found["rest"] or VALID.search(found["rest"])
        ):
            hosts.setdefault(number, set()).add(found[1])
    return [
        FileBlock(number * CHUNK_BYTES, CHUNK_BYTES, frozenset(held))
        for number, held in sorted(hosts.items())
    ]


# Which machine or file system a local path is on, by the mounts of this machine.

MOUNTS = Path("/proc/self/mounts")

NETWORK_TYPES = ("nfs", "nfs4", "fuse.sshfs")
"""The types of mounts whose device is "host:/path" or "user@host:/path"."""


ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A file system: its device, where it is mounted, and its type."""

    device: str
    place: str
    kind: str

    @property
    def host(self) -> str | None:
        """The machine on which the files are, of a network file system of one machine."""
        if self.kind not in NETWORK_TYPES or ":/" not in self.device:
            return None
        return self.device.partition(":/")[0].rpartition("@")[2].strip("[]")

    @property
    def is_moosefs(self) -> bool:
        """Whether this is MooseFS."""
        return self.kind == "fuse.mfs" or self.device.startswith("mfs#")


def mounts() -> list[Mount]:
    """The mounts of this machine."""
    return parse_mounts(MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines())


def parse_mounts(lines: Iterable[str]) -> list[Mount]:
    """The mounts in lines of /proc/mounts."""
    fields = (line.split(" ") for line in lines)
    return [Mount(*map(_plain, found[:3])) for found in fields if len(found) > 2]


def mount_of(path: str, known: Iterable[Mount]) -> Mount | None:
    """The mount that a path is on: the innermost, and the last of several at one place."""
    real = os.path.realpath(path)
    found = None
    for mount in known:
        inside = mount.place.rstrip("/") + "/"
        is_inner = found is None or len(mount.place) >= len(found.place)
        if is_inner and (real + "/").startswith(inside):
            found = mount
    return found


def _plain(field: str) -> str:
    """A field without its escapes, such as 040 in octal digits for a space."""
    return ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)
