"""Functions for `input_hosts`: which hosts hold a file on MooseFS, or on a network mount.

A job names one by its place, `input_hosts: path/to/locators.py:moosefs`, or takes the function
itself in Python. This file needs nothing but slotwise: copy it and change it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from slotwise import InputError

Blocks = list[tuple[int, int, list[str]]]
"""Offset, length, and the names or addresses of the machines that hold these bytes."""

# Where MooseFS keeps the chunks of a file, as its tool mfsfileinfo prints it.

COMMAND = "mfsfileinfo"
CHUNK_BYTES = 64 << 20
"""Each chunk of a file but the last has this size."""

MAX_SECONDS = 30.0
"""Until the tool must have answered."""

CHUNK = re.compile(r"\s+chunk (\d+):")
COPY = re.compile(r"\s+copy \d+: (\S+?):\w+(?P<rest>.*)")
VALID = re.compile(r"status:\s*VALID\b")


def moosefs(path: str) -> Blocks:
    """The chunks of a file that have valid copies. InputError if they are not known.

    The client of MooseFS must be installed on the machine that plans the job.
    """
    try:
        done = subprocess.run(
            [COMMAND, path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAX_SECONDS,
            check=False,
        )
    except OSError as error:
        raise InputError(
            f"input_hosts: {COMMAND} cannot be run ({error.strerror}); install the client of"
            " MooseFS on this machine (moosefs-client), or leave out input_hosts"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"input_hosts: {COMMAND} has not answered for {MAX_SECONDS:g} s; check that the"
            " master of MooseFS runs, or leave out input_hosts"
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
    hosts: dict[int, list[str]] = {}
    number = 0
    for line in lines:
        if found := CHUNK.match(line):
            number = int(found[1])
        elif (found := COPY.match(line)) and (
            "status:" not in found["rest"] or VALID.search(found["rest"])
        ):
            hosts.setdefault(number, []).append(found[1])
    return [(number * CHUNK_BYTES, CHUNK_BYTES, held) for number, held in sorted(hosts.items())]


# Which machine or file system a local path is on, by the mounts of this machine.

MOUNTS = Path("/proc/self/mounts")

NETWORK_TYPES = ("nfs", "nfs4", "fuse.sshfs")
"""The types of mounts whose device is "host:/path" or "user@host:/path"."""

WHOLE = 2**63
"""As a length: to the end of the file, whatever its size."""

ESCAPE = re.compile(r"\\([0-7]{3})")


def mount(path: str) -> Blocks:
    """The blocks of a file by its mount: on MooseFS, or from one machine by NFS or sshfs.

    Nothing is known of files on other mounts, nor of URLs.
    """
    found = None if "://" in path else mount_of(path, mounts())
    if found is None:
        return []
    if found.is_moosefs:
        return moosefs(path)
    return [(0, WHOLE, [found.host])] if found.host else []


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
    for one in known:
        inside = one.place.rstrip("/") + "/"
        is_inner = found is None or len(one.place) >= len(found.place)
        if is_inner and (real + "/").startswith(inside):
            found = one
    return found


def _plain(field: str) -> str:
    """A field without its escapes, such as 040 in octal digits for a space."""
    return ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)
