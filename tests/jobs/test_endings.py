"""How processes have ended: names of signals, and the kernel's counters of lacking memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.jobs.endings import OomKills, signalled

HINT = (
    "; meanwhile the kernel has killed a process for lack of memory (oom_kill in {}): state"
    " the memory of its tasks (`resources`), or use fewer slots"
)


def write(root: Path, place: str, text: str) -> None:
    """A file of the kernel below another root."""
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("groups", "place"),
    [
        ("0::/user/run\n", "sys/fs/cgroup/user/run/memory.events"),
        ("0::/outside\n", "sys/fs/cgroup/memory.events"),
        ("4:cpu,memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.oom_control"),
        ("", "proc/vmstat"),
    ],
)
def test_hint_names_the_counter_that_has_grown(groups: str, place: str, tmp_path: Path) -> None:
    """The counter of the control group is read, or else that of the machine."""
    write(tmp_path, "proc/self/cgroup", groups)
    write(tmp_path, "proc/vmstat", "oom_kill 0\n")
    write(tmp_path, place, "low 0\noom_kill 4\n")
    kills = OomKills(str(tmp_path))
    assert kills.hint() == ""
    write(tmp_path, place, "low 0\noom_kill 5\n")
    assert kills.hint() == HINT.format(f"/{place}")
    assert kills.hint() == ""


def test_without_counters_there_is_no_hint(tmp_path: Path) -> None:
    """A system that has none of the files gets no hint."""
    assert OomKills(str(tmp_path)).hint() == ""


def test_signal_has_its_name() -> None:
    """A number without a name stands alone."""
    assert signalled(9) == "was killed by signal 9 (SIGKILL)"
    assert signalled(200) == "was killed by signal 200"
