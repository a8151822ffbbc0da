"""The names by which programs are known again in another run."""

from __future__ import annotations

from pathlib import Path

from slotwise.jobs.builtin.wordcount import WordCount
from slotwise.jobs.loading import BUILTINS, known_as, load
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.jobs.mapreduce.program import MapReduce

PROGRAM = "import slotwise\nclass Mine(slotwise.MapReduce):\n    def map(self, k, v): ...\n"


class Local(MapReduce):
    """A program of this module."""

    def map(self, key: object, value: str) -> None:
        """Nothing."""


def test_programs_are_known_by_name(tmp_path: Path) -> None:
    """Installed ones by theirs, others by file or module and class, wherever the file lies."""
    for name in sorted(BUILTINS.keys() - {"grep", "teragen"}):
        assert known_as(load(name)) == name
    assert known_as(load("grep", {"pattern": "x"})) == "grep"
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "mine.py").write_text(PROGRAM)
        assert known_as(load("mine.py:Mine", base_dir=folder)) == "mine.py:Mine"
    assert known_as(Local()) == f"{__name__}:Local"
    assert known_as(type("Own", (WordCount,), {})()) == f"{__name__}:Own"


def test_tasks_stand_for_the_bytes_of_the_input(tmp_path: Path) -> None:
    """Maps for what they read, reduces for their part of all, a sample for what it looks at."""
    (tmp_path / "in.txt").write_text("line\n" * 1000)
    planned = plan_mapreduce(
        "s", "sort", str(tmp_path / "in.txt"), tmp_path / "out", reducers=3, split_bytes=2000
    )
    assert planned.program == "sort"
    assert planned.sizes["reduce"] == 5000 // 3
    assert isinstance(planned.sizes["map"], tuple)
    assert sum(planned.sizes["map"]) == 5000
    assert {name: phase.tasks.work for name, phase in planned.job.by_name.items()}.keys() == (
        planned.sizes.keys()
    )
