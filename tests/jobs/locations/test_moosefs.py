"""The chunks of MooseFS, as a fake mfsfileinfo prints them in its documented form."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.core.errors import InputError
from slotwise.jobs import locations
from slotwise.jobs.locations import FileBlock

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
    assert locations.locate("/mnt/mfs/a") == [
        FileBlock(0, MIB_64, frozenset({"10.77.0.2", "10.77.0.3"})),
        FileBlock(2 * MIB_64, MIB_64, frozenset({"10.77.0.4"})),
    ]


def test_the_forms_of_versions_2_and_4() -> None:
    """Without a status, and behind a semicolon; parts of chunks are not copies."""
    assert locations.parse_chunks(OTHERS.splitlines()) == [
        FileBlock(0, MIB_64, frozenset({"10.77.0.2"})),
        FileBlock(MIB_64, MIB_64, frozenset({"10.77.0.3"})),
    ]


def test_a_file_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the tool says."""
    install(tmp_path, 'echo "$1: not MFS object" >&2; exit 1\n', monkeypatch)
    with pytest.raises(InputError, match=r"'/tmp/a': /tmp/a: not MFS object; give files on"):
        locations.locate("/tmp/a")


def test_without_the_tool_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client must be installed where the files are planned."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"mfsfileinfo cannot be run .* install the client"):
        locations.locate("/tmp/a")
