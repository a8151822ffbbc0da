"""Functions for `input_hosts`: the chunks of MooseFS, and the mounts of this machine.

A fake mfsfileinfo prints chunks in its documented form.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import locators
from experiments.locators import Mount
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Block
from slotwise.jobs.mapreduce.planning import plan_mapreduce

VERSION_3 = """\
{path}:
\tchunk 0: 0000000000000012_00000001 / (id:18 ver:1)
\t\tcopy 1: 10.77.0.2:9422 (status:VALID)
\t\tcopy 2: 10.77.0.3:9422 (status:VALID)
\tchunk 1: empty
\tchunk 2: 0000000000000013_00000001 / (id:19 ver:1)
\t\tcopy 1: 10.77.0.4:9422 (status:VALID)
\t\tcopy 2: 10.77.0.2:9422 (status:INVALID)
\tchunk 3: 0000000000000014_00000001 / (id:20 ver:1)
\t\tno valid copies !!!
"""

OTHERS = """\
file:
\tchunk 0: 0000000000000012_00000001 / (id:18 ver:1)
\t\tcopy 1: 10.77.0.2:9422
\tchunk 1: 0000000000000013_00000001 / (id:19 ver:1)
\t\tcopy 1: 10.77.0.3:9422 ; status:VALID
\t\tcopy 2: 10.77.0.4:9422 ; status:WRONG VERSION
\t\tEC part 4_0: 10.77.0.5:9422 ; status:VALID
"""

MIB_64 = 64 << 20


def install(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an mfsfileinfo on the path."""
    tool = folder / "mfsfileinfo"
    tool.write_text("#!/bin/sh\n" + script)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_chunks_with_valid_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are left out."""
    install(tmp_path, f"cat <<'END'\n{VERSION_3}END\n", monkeypatch)
    assert locators.moosefs("/mnt/mfs/a") == [
        (0, MIB_64, ["10.77.0.2", "10.77.0.3"]),
        (2 * MIB_64, MIB_64, ["10.77.0.4"]),
    ]


def test_the_forms_of_versions_2_and_4() -> None:
    """Without a status, and behind a semicolon; parts of chunks are not copies."""
    assert locators.parse_chunks(OTHERS.splitlines()) == [
        (0, MIB_64, ["10.77.0.2"]),
        (MIB_64, MIB_64, ["10.77.0.3"]),
    ]


def test_a_file_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the tool says."""
    install(tmp_path, 'echo "$1: not MFS object" >&2; exit 1\n', monkeypatch)
    with pytest.raises(InputError, match=r"'/tmp/a': /tmp/a: not MFS object; give files on"):
        locators.moosefs("/tmp/a")


def test_without_the_tool_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client must be installed where the files are planned."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"mfsfileinfo cannot be run .* install the client"):
        locators.moosefs("/tmp/a")


MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
mfs\04310.0.0.9:9421 /mnt/mfs fuse rw 0 0
10.0.0.9:9421 /mnt/mfs4 fuse.mfs rw 0 0
dn3:/export /mnt/my\040nfs nfs4 rw 0 0
anna@dn1:/data /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "host", "is_moosefs"),
    [
        ("/home/a", None, False),
        ("/mnt/mfs/a", None, True),
        ("/mnt/mfs4/a", None, True),
        ("/mnt/mfs2/a", None, False),
        ("/mnt/my nfs/a", "dn3", False),
        ("/mnt/ssh/a", "dn1", False),
    ],
)
def test_mounts_tell_where_files_are(path: str, host: str | None, is_moosefs: bool) -> None:
    """The machine that a mount comes from, or MooseFS."""
    found = locators.mount_of(path, locators.parse_mounts(MOUNTS.strip().splitlines()))
    assert found is not None
    assert (found.host, found.is_moosefs) == (host, is_moosefs)


def test_a_mount_is_on_the_machine_that_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a local disk and of URLs nothing is known."""
    local = Mount("/dev/sda1", "/", "ext4")
    monkeypatch.setattr(locators, "mounts", lambda: [local])
    assert locators.mount(str(tmp_path / "a.txt")) == []
    monkeypatch.setattr(locators, "mounts", lambda: [local, Mount("dn3:/a", "/", "nfs")])
    assert locators.mount("webhdfs://node/a.txt") == []
    assert locators.mount(str(tmp_path / "a.txt")) == [(0, locators.WHOLE, ["dn3"])]


def test_a_job_names_a_function_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a workload file does, with a copy of the file beside it."""
    (tmp_path / "locators.py").write_text(Path(locators.__file__).read_text())
    (tmp_path / "a.txt").write_text("a b c d e\n" * 3)
    chunk = "\tchunk 0: 12_1 / (id:18 ver:1)\n\t\tcopy 1: 10.0.0.3:9422 (status:VALID)\n"
    install(tmp_path, f"cat <<'END'\n$1:\n{chunk}END\n", monkeypatch)
    job = plan_mapreduce(
        "j",
        "wordcount",
        "a.txt",
        "out",
        base_dir=tmp_path,
        cluster=Cluster((Host("w-3", {"task": 1}, addresses=("10.0.0.3",)),)),
        input_hosts="locators.py:moosefs",
    ).job
    assert job.by_name["map"].tasks.blocks == (Block(frozenset({"w-3"}), 30),)
