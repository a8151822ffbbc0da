"""Values passed between processes of one host; large ones in files that receivers map.

`put` writes the buffers of a large value (NumPy arrays, Arrow tables) once, by out-of-band
pickling (protocol 5), and returns a small handle. `get` maps the file and copies only the pages
that a receiver changes. The files are in the folders of a `TransferFolders`.
"""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from slotwise.core.errors import WorkFolderError
from slotwise.jobs.execution import IncompleteFileError
from slotwise.jobs.hosts.sockets import shares_files

if TYPE_CHECKING:
    from slotwise.jobs.work_folder import WorkFolder


SHARED_MEMORY = "/dev/shm"
"""A file system in memory; it is used for values that take at most half of its free space."""

MAX_INLINE = 1 << 18
"""The maximum size in bytes of a value that is stored in its handle, without a file."""

MAX_MAPPED = 500
"""The maximum number of files that a process maps at once; further files are read, which copies
them. Each mapped file takes a descriptor, so it is at most half of those allowed."""

ALIGNMENT = 64
"""Buffers begin at multiples of this number of bytes, as Arrow recommends for fast access."""


MAX_FRAME = 1 << 17
"""A longer piece of a pickle is a large value without a frame, or a frame with a large integer:
pickle ends a frame after each value with which it reaches half of this."""

FRAME_BEGINS = (pickle.PROTO, pickle.FRAME)
"""The first byte of pieces with frames: of the first piece of a pickle, and of the others."""

Pieces = Sequence["bytes | memoryview[int]"]
"""The content of a pickle or of a buffer, in consecutive pieces."""


class Handle(NamedTuple):
    """A value that was put. It is itself picklable, and small.

    parts  the pickle and its buffers; empty if they are in a file
    path   the file
    spans  the start and the length of each part in the file
    """

    parts: tuple[bytes, ...]
    path: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def file_bytes(self) -> int:
        """The minimum size of the file. An empty part at its end needs no bytes."""
        return max((start + size for start, size in self.spans if size), default=0)


def put(value: object, folders: Iterable[str], name: str) -> Handle:
    """Store a value; a large one in a file of this name in the first folder with free space.

    Where other hosts do not see the file, the value is stored in its handle. Raises what
    pickling raises, and WorkFolderError if no folder has space.
    """
    buffers: list[pickle.PickleBuffer] = []
    parts = _parts(_pieces(value, buffers.append, buffers), buffers)
    if sum(map(_size, parts)) <= MAX_INLINE or not shares_files():
        return Handle(tuple(map(b"".join, parts)))
    return _store(parts, folders, name)


def pack(value: object, folders: Sequence[str], name: str) -> bytes | Handle:
    """Return the pickle of a value; for a large one, the handle of a file like that of `put`.

    Buffers of at most `MAX_INLINE` bytes are in the pickle, so that the receiver can write to
    these arrays. A small value costs little more than its pickling, and a large one is copied
    once, to the file. Without folders, and where other hosts do not see the file, the pickle
    has everything. Raises what pickling raises.
    """
    if not folders or not shares_files():
        return pickled(value, None, [])
    buffers: list[pickle.PickleBuffer] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        is_small = buffer.raw().nbytes <= MAX_INLINE
        if not is_small:
            buffers.append(buffer)
        return is_small

    pieces = _pieces(value, take, buffers)
    if not buffers and _size(pieces) <= MAX_INLINE:
        return b"".join(pieces)
    try:
        return _store(_parts(pieces, buffers), folders, name)
    except WorkFolderError:  # No folder has space.
        return pickled(value, None, [])


def unpack(packed: bytes | Handle) -> Any:
    """Return the packed value. Raises what `get` raises."""
    return get(packed) if isinstance(packed, Handle) else pickle.loads(packed)


class _OnPath:
    """Its pickle is loaded as another one, after folders were added to the path of modules."""

    def __init__(self, folders: tuple[str, ...], packed: bytes) -> None:
        self._given = folders, packed

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_on_path, self._given


def on_path(folders: tuple[str, ...], packed: bytes) -> bytes:
    """A pickle of the same value, for a process that may not import from these folders yet."""
    return pickle.dumps(_OnPath(folders, packed), protocol=5) if folders else packed


def _load_on_path(folders: tuple[str, ...], packed: bytes) -> Any:
    from slotwise.jobs.own_modules import OWN_MODULES

    OWN_MODULES.use(folders)
    return pickle.loads(packed)


def _store(parts: list[Pieces], folders: Iterable[str], name: str) -> Handle:
    spans, end = [], 0
    for size in map(_size, parts):
        spans.append((end, size))
        end += -(-size // ALIGNMENT) * ALIGNMENT
    where, error = "", OSError("no folder for large values was given")
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            if folder.startswith(SHARED_MEMORY) and _free(folder) < 2 * end:
                continue
            _write(path, parts, spans)
            return Handle((), path, tuple(spans))
        except OSError as problem:
            where, error = folder, problem
            with suppress(OSError):
                os.unlink(path)
    raise WorkFolderError.of(where, error) from error


def get(handle: Handle) -> Any:
    """Return the value of a handle in any process of the host. Changes affect only a copy.

    Raises what unpickling raises, and OSError if the file was removed or is incomplete.
    """
    if not handle.path:
        return pickle.loads(handle.parts[0], buffers=map(bytearray, handle.parts[1:]))
    if len(handle.spans) > 1:
        return loaded(handle, content(handle))
    with _opened(handle) as file:  # Reading large bytes in place is faster than from a map.
        return pickle.load(file)


def content(handle: Handle) -> memoryview[int]:
    """Return the content of the file of a handle; it stays valid if the file is removed.

    Writes to it stay in this process: only changed pages are copied.
    """
    with _opened(handle) as file:
        if len(_mapped) < min(MAX_MAPPED, _max_open_files() // 2):
            with suppress(OSError):  # No descriptor is left.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                _mapped.add(mapped)
                return memoryview(mapped)
        whole = memoryview(bytearray(os.fstat(file.fileno()).st_size))
        return whole[: file.readinto(whole)]


def _opened(handle: Handle) -> BufferedReader:
    """Open the file of a handle. Raises OSError if it was removed or is incomplete."""
    file = open(handle.path, "rb")  # noqa: SIM115
    if os.fstat(file.fileno()).st_size < handle.file_bytes:
        file.close()
        raise IncompleteFileError(handle.path)
    return file


def _max_open_files() -> int:
    """Return the maximum number of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def exists(handle: Handle) -> bool:
    """Return whether a value can be loaded: it is in its handle, or its file is complete."""
    try:
        return not handle.path or os.stat(handle.path).st_size >= handle.file_bytes
    except FileNotFoundError:
        return False


def loaded(handle: Handle, whole: memoryview[int]) -> Any:
    """Return the value of a handle from the content of its file."""
    first, *buffers = [whole[start : start + size] for start, size in handle.spans]
    return pickle.loads(first, buffers=buffers)


def discard(folders: Iterable[str], name: str) -> None:
    """Remove the file of this name if it exists. Processes that have mapped it keep it."""
    for folder in folders:
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))


class TransferFolders:
    """The folders for the large values of one owner: in shared memory, and on disk.

    They are removed by `remove`, or when this object is collected or the process exits. If the
    process is killed, the next process that opens such folders removes them.
    """

    def __init__(self) -> None:
        # Worker processes import this module, but do not need these.
        from slotwise.jobs.work_folder import WorkFolder, temporary_folder, work_folder_name

        roots = (SHARED_MEMORY, temporary_folder())
        self._folders = [WorkFolder(f"{root}/{work_folder_name()}") for root in roots]
        self.paths = tuple(str(folder.path) for folder in self._folders)
        self._remove: weakref.finalize[[list[WorkFolder], int], TransferFolders] | None = None

    def open(self, owner: str) -> None:
        """Create the folders unless they are open. Raises WorkFolderError."""
        if self._remove is not None:
            return
        with suppress(OSError):  # Not every system has shared memory as a file system.
            self._folders[0].open(owner)
        folder = self._folders[1]
        try:
            folder.open(owner)
        except OSError as error:
            raise WorkFolderError.of(str(folder.path.parent), error) from error
        self._remove = weakref.finalize(self, _remove_all, self._folders, os.getpid())

    def remove(self) -> None:
        """Remove the folders. Processes that have mapped a file keep it."""
        if self._remove is not None:
            self._remove()


_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def _remove_all(folders: list[WorkFolder], pid: int) -> None:
    if os.getpid() == pid:  # A forked child does not own them.
        for folder in folders:
            folder.remove()


def pickled(
    value: object,
    take: Callable[[pickle.PickleBuffer], object] | None,
    taken: list[pickle.PickleBuffer],
) -> bytes:
    """Return the pickle of a value, by plain pickle, which is fast, or by value if needed.

    `take` gets the buffers. Those that it adds to `taken` are not in the pickle.
    """
    pieces = _pieces(value, take, taken)
    return cast(bytes, pieces[0]) if len(pieces) == 1 else b"".join(pieces)


class _Collector(list[Any]):
    """A file for a pickle that keeps the pieces, without copying large bytes."""

    write = list.append


def _pieces(
    value: object,
    take: Callable[[pickle.PickleBuffer], object] | None,
    taken: list[pickle.PickleBuffer],
) -> Pieces:
    """Return the pickle of `pickled` in pieces."""
    body = _Collector()
    try:
        pickle.Pickler(body, protocol=5, buffer_callback=take).dump(value)
        # Plain pickle stores classes of `__main__` by name, but the other process has another
        # `__main__`.
        if not any(b"__main__" in piece for piece in filter(_may_name, body)):
            return _as_bytes(body)
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    from slotwise.jobs.pickling import dump_by_value

    taken.clear()
    body = _Collector()
    dump_by_value(value, take, body)
    return _as_bytes(body)


def _may_name(piece: object) -> TypeGuard[bytes]:
    """Return whether a piece of a pickle may name a class; large values need no search."""
    if type(piece) is not bytes:
        return False
    return len(piece) <= MAX_FRAME or piece.startswith(FRAME_BEGINS)


def _as_bytes(pieces: list[Any]) -> Pieces:
    """Return the pieces, with views of the bytes of other objects."""
    if len(pieces) == 1:
        return pieces
    return [p if type(p) is bytes else pickle.PickleBuffer(p).raw() for p in pieces]


def _parts(pieces: Pieces, buffers: list[pickle.PickleBuffer]) -> list[Pieces]:
    """Return the pickle of a value followed by its buffers."""
    return [pieces, *([buffer.raw()] for buffer in buffers)]


def _size(pieces: Pieces) -> int:
    return sum(map(len, pieces))


def _free(folder: str) -> int:
    """Return the free bytes of the file system of a folder."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def _write(path: str, parts: list[Pieces], spans: list[tuple[int, int]]) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for part, (start, _) in zip(parts, spans, strict=True):
            file.seek(start)
            file.writelines(part)
