"""Input that is another one than was planned with never makes a result."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.errors import InputChanged, InputError
from slotwise.jobs import Execution, MapReduce, plan_mapreduce
from slotwise.jobs.formats.files import Version, check_unchanged, find_inputs
from slotwise.jobs.hosts.sockets import ADDRESS_VARIABLE

Drive = Callable[[Execution], None]
Change = Callable[[Path], object]

TEXT = b"one line of text\n" * 100


def truncate(path: Path) -> None:
    """Cut it off."""
    os.truncate(path, 40)


def rewrite(path: Path) -> None:
    """Other bytes of the same number, at another time."""
    then = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(then, then + 1))


def append(path: Path) -> None:
    """Make it longer."""
    with path.open("ab") as file:
        file.write(b"more\n")


def replace(path: Path) -> None:
    """Put another file in its place."""
    other = path.with_name("other")
    other.write_bytes(b"another file\n")
    other.replace(path)


CHANGES = [truncate, rewrite, append, replace, Path.unlink]


class Counts(MapReduce):
    """How many records there are; `change` is done to the input when the first one is read."""

    change: Change | None = None
    is_changed = False

    def map(self, key: Any, value: Any) -> Iterable[tuple[str, int]]:
        """One."""
        if self.change is not None and not self.is_changed:
            self.is_changed = True
            self.change(Path(self.path))
        yield "records", 1

    def reduce(self, key: Any, values: Any) -> Iterable[tuple[str, int]]:
        """Their number."""
        yield key, sum(values)


class Sorts(Counts):
    """The same, with a sample of the keys before."""

    total_order = True


def parquet(path: Path) -> None:
    """Ten row groups of 100 rows."""
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    pq.write_table(pa.table({"n": list(range(1000))}), path, row_group_size=100)


def written_by(pack: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Writes the text, packed."""
    return lambda path: path.write_bytes(pack(TEXT))


FORMATS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "in.txt": ("text", written_by(bytes)),
    "in.jsonl": ("jsonl", lambda path: path.write_bytes(b"[1, 2, 3]\n" * 100)),
    "in.gz": ("text", written_by(gzip.compress)),
    "in.bz2": ("text", written_by(bz2.compress)),
    "in.xz": ("text", written_by(lzma.compress)),
    "in.parquet": ("parquet", parquet),
}


def planned(folder: Path, name: str, program: Counts) -> Execution:
    """A job over one file, made by its format, in one split."""
    input_format, write = FORMATS[name]
    write(folder / name)
    return plan_mapreduce(
        "j", program, name, "out", base_dir=folder, work_dir=folder, input_format=input_format
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_before_it_is_read(
    tmp_path: Path, drive: Drive, name: str, change: Change
) -> None:
    """Its task fails with that reason, and there is no output."""
    job = planned(tmp_path, name, Counts())
    change(tmp_path / name)
    with pytest.raises(InputChanged, match=f"{name}' has changed since its job was planned"):
        drive(job)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("program", [Counts, Sorts])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, drive: Drive, name: str, change: Change, program: type[Counts]
) -> None:
    """The same, whether maps or the sample have begun to read it."""
    made = program()
    made.change = change
    with pytest.raises(InputChanged, match=f"{name}' has changed since its job was planned"):
        drive(planned(tmp_path, name, made))
    assert not (tmp_path / "out").exists()


def test_a_file_that_changes_between_two_splits(tmp_path: Path, drive: Drive) -> None:
    """A split that was read before the change does not count either."""
    (tmp_path / "in.txt").write_bytes(TEXT)
    job = plan_mapreduce(
        "j", Counts(), "in.txt", "out", base_dir=tmp_path, work_dir=tmp_path, split_bytes=1000
    )
    runner = job.runner
    job.finished("map", 0, 0, runner(*job.arguments("map", 0, 0)))
    append(tmp_path / "in.txt")
    with pytest.raises(InputChanged):
        runner(*job.arguments("map", 1, 0))
    job.close(succeeded=False)


def test_the_message_shows_the_planned_and_the_present_file(tmp_path: Path) -> None:
    """Sizes and times, to the nanosecond if need be, and what to do."""
    (tmp_path / "in.txt").write_bytes(TEXT)
    os.utime(tmp_path / "in.txt", ns=(0, 10**18 + 7))
    job = plan_mapreduce("j", Counts(), "in.txt", "out", base_dir=tmp_path, work_dir=tmp_path)
    os.utime(tmp_path / "in.txt", ns=(0, 10**18 + 8))
    with pytest.raises(InputChanged) as raised:
        job.runner(*job.arguments("map", 0, 0))
    job.close(succeeded=False)
    message = str(raised.value)
    assert message.startswith(f"input '{tmp_path}/in.txt' has changed")
    assert "Then: 1700 bytes, modified 2001-09-09 " in message
    assert ".000000007. Now: 1700 bytes, " in message
    assert ".000000008. Run the job again when nothing writes to its input" in message


def test_metadata_alone_is_no_change(tmp_path: Path, drive: Drive) -> None:
    """Rights, other names, and having been read change nothing."""
    job = planned(tmp_path, "in.txt", Counts())
    (tmp_path / "in.txt").chmod(0o600)
    (tmp_path / "link").hardlink_to(tmp_path / "in.txt")
    assert (tmp_path / "in.txt").read_bytes() == TEXT
    drive(job)
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_a_file_behind_a_url(drive: Drive, tmp_path: Path) -> None:
    """Other file systems are asked, too."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/changed/in.txt", TEXT)
    job = plan_mapreduce("j", Counts(), "memory://changed/*", tmp_path / "out")
    memory.pipe("/changed/in.txt", TEXT[:-17])
    with pytest.raises(InputChanged, match=r"in.txt' has changed.* Then: 1700 .* Now: 1683 "):
        drive(job)


def test_versions_are_compared_by_their_common_fields() -> None:
    """Content counts before times, and what is not said is no difference."""
    listed = Version.of_info({"size": 5, "ETag": "a", "LastModified": "1"})
    assert listed.may_be(Version.of_info({"size": 5, "ETag": "a", "LastModified": "2"}))
    assert not listed.may_be(Version.of_info({"size": 5, "ETag": "b", "LastModified": "1"}))
    assert not listed.may_be(Version.of_info({"size": 6, "ETag": "a"}))
    assert listed.may_be(Version.of_info({"size": None, "created": 2.0}))
    assert not Version.of_info({"mtime": 1.0}).may_be(Version.of_info({"mtime": 2.0}))


def test_links_are_followed_anywhere_in_a_path(tmp_path: Path) -> None:
    """A link counts as its file: named, in a folder, or matched by a pattern."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(TEXT)
    (tmp_path / "in" / "link").symlink_to("file")
    for pattern in ("in", "in/*", "in/link"):
        found = find_inputs([pattern], tmp_path)
        assert found[-1].path == f"{tmp_path}/in/link"
        assert found[-1].size_bytes == len(TEXT)


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    """Python would raise ValueError."""
    with pytest.raises(InputError, match=r"embedded null (byte|character in path)"):
        find_inputs(["a\0b"], tmp_path)


def test_a_file_that_only_other_hosts_have_is_told_with_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host with an agent, the likely reason is a folder that is not shared."""
    monkeypatch.setenv(ADDRESS_VARIABLE, "10.0.0.3:41234")
    with pytest.raises(InputChanged) as raised:
        check_unchanged(str(tmp_path / "in.txt"), Version(7, 0))
    assert f"not the same on host {os.uname().nodename} (10.0.0.3)" in str(raised.value)
    assert "Here: it does not exist" in str(raised.value)
    assert "All hosts must see the same files" in str(raised.value)
