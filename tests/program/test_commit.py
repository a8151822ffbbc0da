"""What becomes of attempts and of the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise.model.errors import InputError
from slotwise.program import plan_mapreduce
from slotwise.program.mapreduce_execution import MapReduceExecution


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a text and room for temporary files."""
    (tmp_path / "text").write_text("b a\nb\n")
    (tmp_path / "work").mkdir()
    return tmp_path


def plan(place: Path, **options: Any) -> MapReduceExecution:
    """Word count in one part."""
    return plan_mapreduce(
        "j",
        "wordcount",
        "text",
        "new/out",
        base_dir=place,
        work_dir=place / "work",
        **{"reducers": 1, **options},
    )


def attempt(execution: MapReduceExecution, phase: str, task: int, number: int) -> object:
    """Run one attempt, without telling the result."""
    return execution.runner(*execution.arguments(phase, task, number))


def finish_maps(execution: MapReduceExecution) -> None:
    """Run all map tasks."""
    for task in range(execution.job.by_name["map"].tasks.count):
        execution.finished("map", task, 0, attempt(execution, "map", task, 0))


def test_output_appears_with_success_last(place: Path) -> None:
    """Before the commit there is no part to see, afterwards nothing temporary is left."""
    execution = plan(place)
    finish_maps(execution)
    execution.finished("reduce", 0, 0, attempt(execution, "reduce", 0, 0))
    out = place / "new" / "out"
    assert [path.name for path in out.iterdir()] == ["_temporary"]
    execution.close(True)
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-r-00000"]
    assert (out / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"
    assert list((place / "work").iterdir()) == []


def test_a_failed_job_leaves_nothing(place: Path) -> None:
    """The output, its new parent and the temporary files go."""
    execution = plan(place)
    finish_maps(execution)
    attempt(execution, "reduce", 0, 0)
    execution.close(False)
    assert sorted(path.name for path in place.iterdir()) == ["text", "work"]
    assert list((place / "work").iterdir()) == []


def test_a_job_that_never_began_leaves_nothing(place: Path) -> None:
    """Closing an unopened job touches nothing."""
    plan(place).close(False)
    assert sorted(path.name for path in place.iterdir()) == ["text", "work"]


def test_later_attempts_never_change_the_output(place: Path) -> None:
    """An attempt beside the winner, half-way, finished or discarded, does no harm."""
    execution = plan(place)
    finish_maps(execution)
    execution.finished("map", 0, 1, attempt(execution, "map", 0, 1))
    results = [attempt(execution, "reduce", 0, number) for number in range(3)]
    half = Path(execution.output) / "_temporary" / "2-part-r-00000"
    half.write_bytes(b"half")
    execution.finished("reduce", 0, 1, results[1])
    execution.finished("reduce", 0, 0, results[0])
    execution.discard("reduce", 0, 2)
    execution.discard("reduce", 0, 1)
    assert not half.exists()
    execution.close(True)
    assert (Path(execution.output) / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"


def test_overwritten_output_stays_until_the_commit(place: Path) -> None:
    """A job that fails leaves the old output; one that succeeds replaces all of it."""
    out = place / "new" / "out"
    out.mkdir(parents=True)
    (out / "part-r-00007").write_text("old")
    failing = plan(place, overwrite=True)
    finish_maps(failing)
    failing.close(False)
    assert [path.name for path in out.iterdir()] == ["part-r-00007"]
    execution = plan(place, overwrite=True)
    finish_maps(execution)
    execution.finished("reduce", 0, 0, attempt(execution, "reduce", 0, 0))
    execution.close(True)
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-r-00000"]


def test_output_that_appeared_after_planning_is_not_touched(place: Path) -> None:
    """Two jobs with one output: the second is refused when it begins."""
    execution = plan(place)
    (place / "new" / "out").mkdir(parents=True)
    with pytest.raises(InputError, match="exists"):
        execution.arguments("map", 0, 0)
    execution.close(False)
    assert (place / "new" / "out").exists()
