"""Channels in files: streams apart, cut files, full disks, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.errors import WorkFolderError
from slotwise.jobs.channels.files import FileReader, FileWriter, Spilling
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.execution import IncompleteFileError
from tiers import examples

WRITES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200_000)), max_size=60)


@settings(max_examples=examples(10, slow=200))
@given(writes=WRITES)
def test_streams_of_a_file_are_apart(
    writes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each has its records in order, however the writes were mixed."""
    path = tmp_path_factory.mktemp("files") / "written"
    with FileWriter(path, 3) as file:
        for part, size in writes:
            file.part(part).write(bytes(size))
    for part in range(3):
        sizes = [len(record) for record in FileReader(path, part)]  # type: ignore[arg-type]
        assert sizes == [size for where, size in writes if where == part]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_file_is_noticed(tmp_path: Path, kept: float) -> None:
    """Before the first record is read."""
    path = tmp_path / "written"
    with FileWriter(path, 2) as file:
        file.part(1).write_all(range(10_000))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(IncompleteFileError):
        FileReader(path, 1)


def test_a_file_of_a_writer_that_failed_is_incomplete(tmp_path: Path) -> None:
    """Its streams are not ended."""
    path = tmp_path / "written"
    with pytest.raises(ZeroDivisionError), FileWriter(path, 1) as file:
        file.part(0).write(1 / 0)
    with pytest.raises(IncompleteFileError):
        FileReader(path, 0)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    """The reader raises at once."""
    with pytest.raises(FileNotFoundError):
        FileReader(tmp_path / "missing", 0)


def test_a_full_disk_is_an_error_of_the_system() -> None:
    """It passes through write or close."""
    with (
        pytest.raises(WorkFolderError, match="in /dev: No space left"),
        FileWriter("/dev/full", 1) as file,
    ):
        file.part(0).write_all(bytes(1000) for _ in range(10_000))


def test_a_spilling_reader_without_room_fails(tmp_path: Path) -> None:
    """The error of its thread is that of the reader; its folder is missing here."""
    from jobs.channels.ends import Child

    ring = SharedRing(1 << 14)

    def body() -> None:
        with ring.writer() as writer:
            writer.write_all(bytes(100_000) for _ in range(100))

    child = Child(body)
    with Spilling(ring.reader(), 0, tmp_path / "missing") as reader:
        with pytest.raises(WorkFolderError, match=r"kept in .*missing: No such file"):
            list(reader)
        assert isinstance(reader.failure, WorkFolderError)
    assert child.outcome() is not None


def test_importing_channels_is_cheap() -> None:
    """A task loads only the kinds that it uses, and neither numpy nor pyarrow."""
    code = "import slotwise.jobs.channels.{}, sys; print(*sys.modules)"
    for name in ("ring", "files", "tcp"):
        loaded = subprocess.run(
            [sys.executable, "-c", code.format(name)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        heavy = {"numpy", "pyarrow", "cloudpickle", "pydantic", "asyncio", "multiprocessing"}
        assert not heavy & set(loaded)
