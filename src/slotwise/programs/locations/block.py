"""Where the bytes of a file are, as every source of it says: offset, length, hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

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
