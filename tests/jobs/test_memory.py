"""The memory that tasks may use on a machine, and what processes use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slotwise.jobs.memory import (
    free_within_limits,
    memory_limit,
    memory_of,
    reserve,
    tree_memory,
    usable_memory,
    wait_for_end,
)

GIB, MIB = 1 << 30, 1 << 20
UNLIMITED = "9223372036854771712\n"  # What version 1 writes without a limit.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 16 GiB, of which 8 GiB are free, without control groups."""
    write(tmp_path / "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    """A file of the kernel below another root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def limit_v2(folder: Path, limit: object, used: int, inactive: int) -> None:
    """A control group of version 2 with a limit and its use."""
    write(folder / "memory.max", f"{limit}\n")
    write(folder / "memory.current", f"{used}\n")
    write(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\n")


def test_without_a_group_the_limit_is_the_memory_of_the_machine(root: Path) -> None:
    """A sixteenth of it is the reserve."""
    assert memory_limit(str(root)) == 16 * GIB
    assert free_within_limits(str(root)) == 8 * GIB
    assert usable_memory(str(root)) == 15 * GIB


def test_the_least_limit_of_the_group_and_those_above_it_counts(root: Path) -> None:
    """Version 2; pages of files that were not used lately count as free."""
    write(root / "proc/self/cgroup", "0::/user/job/step\n")
    limit_v2(root / "sys/fs/cgroup/user/job/step", "max", GIB, 0)
    limit_v2(root / "sys/fs/cgroup/user/job", 4 * GIB, 3 * GIB, 512 * MIB)
    limit_v2(root / "sys/fs/cgroup/user", 6 * GIB, 3 * GIB, 0)
    assert memory_limit(str(root)) == 4 * GIB
    assert free_within_limits(str(root)) == GIB + 512 * MIB
    assert usable_memory(str(root)) == 4 * GIB - 256 * MIB


def test_groups_of_version_1_limit_too(root: Path) -> None:
    """The number that stands for no limit is larger than any machine."""
    write(root / "proc/self/cgroup", "3:cpu:/other\n2:memory:/job\n0::/\n")
    top = root / "sys/fs/cgroup/memory"
    for folder, limit in ((top, UNLIMITED), (top / "job", f"{2 * GIB}\n")):
        write(folder / "memory.limit_in_bytes", limit)
        write(folder / "memory.usage_in_bytes", f"{GIB}\n")
        write(folder / "memory.stat", f"cache 1\ntotal_inactive_file {MIB}\n")
    assert memory_limit(str(root)) == 2 * GIB
    assert free_within_limits(str(root)) == GIB + MIB


def test_a_group_that_a_container_sees_as_the_whole_tree_limits(root: Path) -> None:
    """Its path is that outside of the container, where nothing has this name."""
    write(root / "proc/self/cgroup", "0::/system.slice/box\n")
    limit_v2(root / "sys/fs/cgroup", 3 * GIB, GIB, 0)
    assert memory_limit(str(root)) == 3 * GIB


@pytest.mark.parametrize(
    ("limit", "kept"), [(GIB, 256 * MIB), (8 * GIB, 512 * MIB), (1 << 40, 4 * GIB)]
)
def test_the_reserve_has_a_least_and_a_greatest_size(limit: int, kept: int) -> None:
    """In between it is a sixteenth."""
    assert reserve(limit) == kept


@contextmanager
def holding(mebibytes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds this much memory until its input ends; it then exits with 3."""
    script = f"block = b'x' * ({mebibytes} << 20); print(flush=True); input()"
    command = [sys.executable, "-c", f"try: {script}\nexcept EOFError: exit(3)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_a_tree_has_the_memory_of_all_its_processes() -> None:
    """A child that holds 50 MiB is counted with its parent; what they share counts once."""
    before = tree_memory(os.getpid())
    with holding(50) as child:
        alone, together = memory_of([child.pid]), tree_memory(os.getpid())
        child.communicate()
    assert 50 * MIB <= alone <= 90 * MIB
    assert together - before >= 20 * MIB
    assert memory_of([child.pid]) == 0


def test_the_peak_of_a_command_is_that_of_its_processes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its samples see two processes; the kernel's number is that of the larger one."""
    monkeypatch.setattr("slotwise.jobs.memory.SAMPLE_SECONDS", 0.001)
    with holding(60) as child, holding(50) as other:
        seen, reported = iter([[child.pid], [child.pid, other.pid]]), list[int]()

        def processes() -> list[int]:
            found = next(seen, [])
            if not found and child.stdin and not child.stdin.closed:
                child.stdin.close()
            return found

        status, _ = wait_for_end(child.pid, processes, reported.append)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 3
        assert max(reported) >= 110 * MIB


def test_the_peak_of_a_short_command_is_that_of_its_largest_process() -> None:
    """It is known although no sample was taken."""
    with holding(60) as child:
        assert child.stdin is not None
        child.stdin.close()
        status, largest = wait_for_end(child.pid, list, print)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert largest >= 60 * MIB
