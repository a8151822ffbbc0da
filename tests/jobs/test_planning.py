"""Planning of MapReduce jobs: what is refused, and the job that the scheduler sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise.core.errors import InputError
from slotwise.jobs import MapReduce, load, plan_mapreduce
from slotwise.jobs.builtin.terasort import TeraSort


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with 100 bytes of text in the file `text`."""
    (tmp_path / "text").write_text("a line of text, it has 25\n" * 4)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": "nope"}, "unknown program 'nope'; installed: grep, inverted-index"),
        ({"program": "nope.py:A"}, "nope.py not found"),
        (
            {"program": "grep"},
            "missing a required argument: 'pattern'; its parameters: pattern",
        ),
        (
            {"parameters": {"size": 1}},
            "unexpected keyword argument 'size'; its parameters: none",
        ),
        ({"program": "grep", "parameters": {"pattern": "("}}, "not a regular expression"),
        ({"program": MapReduce}, "'MapReduce' has no map"),
        ({"program": int}, "'int' is not a MapReduce; derive"),
        ({"inputs": "*.none"}, r"input '\*.none': no file matches"),
        ({"inputs": []}, "no inputs; give paths"),
        ({"inputs": "strange://a"}, "strange"),
        ({"output": "."}, "exists; name another directory, remove it, or set overwrite"),
        ({"output": "text", "overwrite": True}, "is a file"),
        ({"output": ""}, "no output"),
        ({"reducers": -1}, "reducers is -1; give a whole number >= 0"),
        ({"split_bytes": 0}, "split_bytes is 0"),
        ({"memory_bytes": 10}, "memory_bytes is 10"),
        ({"input_format": "csv"}, "unknown input format 'csv'; known: jsonl"),
        ({"output_format": "csv"}, "unknown output format 'csv'; known: jsonl"),
        ({"input_format": "parquet"}, "cannot be read as Parquet"),
        ({"program": "teragen", "parameters": {"records": 5}}, "leave out inputs"),
        ({"slots_min": 3, "slots_max": 2}, "slots_min is 3, above slots_max 2"),
    ],
)
def test_refused(place: Path, changes: dict[str, Any], message: str) -> None:
    """Each mistake is named, with what helps; nothing is written."""
    arguments = {"program": "wordcount", "inputs": "text", "output": "out", **changes}
    with pytest.raises(InputError, match=message):
        plan_mapreduce("j", base_dir=place, **arguments)
    assert [path.name for path in place.iterdir()] == ["text"]


def test_the_job_states_phases_counts_and_work(place: Path) -> None:
    """Map tasks follow splits; work follows bytes at the rates of the program."""
    map_rate, reduce_rate = TeraSort.map_bytes_per_second, TeraSort.reduce_bytes_per_second
    execution = plan_mapreduce(
        "j", "terasort", "text", "out", base_dir=place, split_bytes=60, pool="p", slots_max=2
    )
    sample, mapping, reducing = execution.job.phases
    assert (sample.name, sample.kind, sample.tasks.count) == ("sample", "map", 1)
    assert (mapping.name, mapping.kind, mapping.after) == ("map", "map", {"sample"})
    assert mapping.tasks.work == (60 / map_rate, 44 / map_rate)
    assert (reducing.kind, reducing.after, reducing.slots_max) == ("reduce", {"map"}, 2)
    assert reducing.tasks.work == pytest.approx(104 / reduce_rate / 2)
    assert execution.job.pool == "p"
    assert execution.describe("map", 1) == f"map task 1 of job j ({place}/text, 60-104)"


def test_a_program_from_a_file(place: Path) -> None:
    """Only the named program is imported, with the modules next to it; it is sent by value."""
    (place / "helper.py").write_text("WORD = 'helped'\n")
    (place / "mine.py").write_text(
        "import helper\nfrom slotwise.jobs import MapReduce\n"
        "class Mine(MapReduce):\n"
        "    def __init__(self, times=1):\n        self.times = times\n"
        "    def map(self, key, value):\n        yield helper.WORD, self.times\n"
    )
    program = load("mine.py:Mine", {"times": 3}, place)
    assert list(program.map(0, "x")) == [("helped", 3)]
    with pytest.raises(InputError, match="defines no 'Other'; it defines Mine"):
        load("mine.py:Other", {}, place)
    (place / "bad.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=r"importing .*bad.py failed: ZeroDivisionError"):
        load("bad.py:Mine", {}, place)


def test_parameters_for_a_made_program_are_refused() -> None:
    """An object has its parameters already."""
    with pytest.raises(InputError, match="an object already"):
        load(load("wordcount"), {"a": 1})
