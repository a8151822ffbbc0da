"""Which machine or file system a local path is on, by the mounts of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
    return parse(MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines())


def parse(lines: Iterable[str]) -> list[Mount]:
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
