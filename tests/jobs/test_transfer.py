"""Values that pass between processes, in handles and in files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotwise.core.errors import WorkFolderError
from slotwise.jobs import transfer
from slotwise.jobs.transfer import Handle, TransferFolders, discard, get, pack, put, unpack
from tiers import examples
from waiting import until

LARGE = 1 << 20


def test_a_small_value_travels_in_its_handle(tmp_path: Path) -> None:
    """No file is written for it."""
    handle = put({"a": [1, 2]}, [str(tmp_path)], "x")
    assert get(pickle.loads(pickle.dumps(handle))) == {"a": [1, 2]}
    assert list(tmp_path.iterdir()) == []


def test_a_large_array_is_mapped_from_its_file(tmp_path: Path) -> None:
    """The handle stays small, and the receiver's array is a view of the file."""
    array = np.arange(LARGE)
    handle = put((array, "name"), [str(tmp_path)], "x")
    assert len(pickle.dumps(handle)) < 1000
    assert (tmp_path / "x").stat().st_size >= array.nbytes
    received, name = get(handle)
    assert name == "name"
    assert np.array_equal(received, array)
    assert not received.flags.owndata


@pytest.mark.parametrize("size", [3, LARGE])
def test_a_receiver_changes_a_copy(tmp_path: Path, size: int) -> None:
    """Whatever the size, others receive the array as it was sent."""
    handle = put(np.arange(size), [str(tmp_path)], "x")
    get(handle)[0] = 7
    assert get(handle)[0] == 0


def test_a_received_value_outlives_its_file(tmp_path: Path) -> None:
    """Whoever has mapped a file keeps the value."""
    received = get(put(np.full(LARGE, 7), [str(tmp_path)], "x"))
    discard([str(tmp_path)], "x")
    assert list(tmp_path.iterdir()) == []
    assert int(received.sum()) == 7 * LARGE


def test_beyond_a_number_of_files_values_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mapped file takes a file descriptor, so a process maps only so many."""
    monkeypatch.setattr(transfer, "MAX_MAPPED", 0)
    handle = put(np.arange(LARGE), [str(tmp_path)], "x")
    before = os.listdir("/proc/self/fd")
    received = get(handle)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert np.array_equal(received, np.arange(LARGE))


MANY = """
import resource, sys
import numpy as np
from slotwise.jobs.transfer import get, put

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
handles = [put(np.full(100_000, n), [sys.argv[1]], str(n)) for n in range(100)]
arrays = [get(handle) for handle in handles]
assert [int(array[-1]) for array in arrays] == list(range(100))
files = [open(sys.argv[0]) for _ in range(20)]
"""


def test_mapped_files_leave_descriptors_for_others(tmp_path: Path) -> None:
    """However low the limit of open files is."""
    program = tmp_path / "program.py"
    program.write_text(MANY)
    subprocess.run([sys.executable, str(program), str(tmp_path)], check=True)


class Held:
    """An object with large bytes, of a class that can be imported."""

    def __init__(self, content: object) -> None:
        self.content = content


def allocated(call: Callable[[], object]) -> tuple[object, int]:
    """What a function returns, and how many bytes it has allocated at most at a time."""
    tracemalloc.start()
    try:
        found = call()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (bytes, 1),
        (bytearray, 1),
        (lambda size: [{"a": bytes(size)}], 1),
        (lambda size: Held(bytes(size)), 1),
        (lambda size: np.zeros(size, np.uint8), 0),
        (lambda size: (lambda: None, bytes(size)), 1),  # With code that is sent by value.
        (lambda size: "x" * size, 2),  # Text is encoded and decoded.
    ],
)
def test_large_values_are_copied_only_to_the_file_and_from_it(
    make: Callable[[int], object], copies: int, tmp_path: Path
) -> None:
    """To pack a value copies it to no memory, and to unpack it only where Python must."""
    size = 8 << 20
    value = make(size)
    packed, most = allocated(lambda: pack(value, [str(tmp_path)], "x"))
    assert isinstance(packed, Handle)
    assert most < size * (copies == 2) + size // 4
    _, most = allocated(lambda: unpack(packed))
    assert most < size * copies + size // 4


def test_what_large_bytes_hold_is_no_name_of_a_class(tmp_path: Path) -> None:
    """The name of the module of a script in them does not mean code of the script."""
    value = b"__main__" * LARGE
    packed = pack(value, [str(tmp_path)], "x")
    assert isinstance(packed, Handle)
    assert unpack(packed) == value


@pytest.mark.parametrize(
    "beside",
    [1 << 3_000_000, "a" * 65_535, bytes(LARGE)],
    ids=["integer", "text", "bytes"],
)
def test_a_class_of_a_script_is_found_beside_any_value(
    beside: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large integers lengthen the frame of a pickle that names it; other values do not."""
    model = type("Model", (), {"__module__": "__main__"})
    with monkeypatch.context() as script:
        script.setattr(sys.modules["__main__"], "Model", model, raising=False)
        packed = pack([b"b" * 65_000, model, beside], [], "")
    # As in another process, whose `__main__` does not have it.
    assert unpack(packed) == [b"b" * 65_000, model, beside]


def test_the_first_folder_with_room_is_used(tmp_path: Path) -> None:
    """A folder that is missing is passed over; without any folder it is an error."""
    there = tmp_path / "there"
    there.mkdir()
    value = np.arange(LARGE)
    assert put(value, [str(tmp_path / "missing"), str(there)], "x").path == str(there / "x")
    with pytest.raises(WorkFolderError, match=r"kept in .*missing: No such file"):
        put(value, [str(tmp_path / "missing")], "x")


def test_shared_memory_that_is_nearly_full_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value takes at most half of what is free in shared memory."""
    small, disk = tmp_path / "small", tmp_path / "disk"
    small.mkdir()
    disk.mkdir()
    monkeypatch.setattr(transfer, "SHARED_MEMORY", str(small))
    monkeypatch.setattr(transfer, "_free", lambda folder: LARGE)
    handle = put(bytes(LARGE), [str(small), str(disk)], "x")
    assert handle.path == str(disk / "x")


@example(parts=[np.arange(32_751) % 251, np.arange(0)])  # The last part is empty.
@settings(max_examples=examples(20, slow=300), deadline=None)
@given(
    parts=st.lists(
        st.one_of(
            st.integers(0, 300_000).map(lambda size: np.arange(size) % 251),
            st.integers(0, 300_000).map(bytes),
            st.integers(0, 300).map(lambda size: np.ones((size, 300), order="F")),
            st.text(max_size=5),
        ),
        max_size=4,
    )
)
def test_any_value_comes_back(
    parts: list[object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the number and sizes of its buffers, a value is received as it was put."""
    folder = tmp_path_factory.mktemp("values")
    received = get(put(parts, [str(folder)], "x"))
    assert [type(one) for one in received] == [type(one) for one in parts]
    assert all(np.array_equal(one, other) for one, other in zip(received, parts, strict=True))


def test_folders_go_with_their_owner() -> None:
    """They are removed when asked, or with the object, and not before."""
    folders = TransferFolders()
    folders.open("a test")
    handle = put(np.arange(LARGE), folders.paths, "x")
    assert Path(handle.path).parent.stat().st_mode & 0o777 == 0o700
    assert Path(handle.path).stat().st_mode & 0o777 == 0o600
    paths = [Path(path) for path in folders.paths]
    assert any(path.exists() for path in paths)
    del folders
    assert not any(path.exists() for path in paths)


def test_folders_of_a_killed_process_are_removed_by_the_next() -> None:
    """A killed process cannot remove its folders; the next that opens some does."""
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os\n"
            "from slotwise.jobs.transfer import TransferFolders\n"
            "folders = TransferFolders()\n"
            "folders.open('killed')\n"
            "print(*folders.paths, flush=True)\n"
            "os.kill(os.getpid(), 9)",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    left = [Path(path) for path in killed.stdout.split()]
    assert any(path.exists() for path in left)
    folders = TransferFolders()
    folders.open("next")
    # Or another one that opens some now, such as that of a test beside this one.
    until(lambda: not any(path.exists() for path in left))
    folders.remove()


def test_a_handle_without_its_file_is_an_error(tmp_path: Path) -> None:
    """Its value is gone."""
    with pytest.raises(FileNotFoundError):
        get(Handle((), str(tmp_path / "gone"), ((0, 1),)))
