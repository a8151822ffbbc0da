"""The jobs of golden logs on real backends."""

from __future__ import annotations

from typing import Any

from slotwise import Calls, Dataflow, Job, Phase, Tasks
from slotwise import task as slotwise_task

WORDS = "to be or not to be that is the question whether it is nobler in the mind"
TEXT = "".join(
    f"{word} {word[::-1]} {number % 7}\n" for number, word in enumerate(WORDS.split() * 5)
)
"""The file text.txt, which programs read."""


def words(job: str = "words", **more: Any) -> dict[str, Any]:
    """A MapReduce job of six maps and two reduces."""
    files = {
        "inputs": "text.txt",
        "output": f"out-{job}",
        "split_bytes": 200,
        "overwrite": True,
    }
    return {"id": job, "program": "wordcount", "reducers": 2, **files, **more}


def shell(job: str, **more: Any) -> dict[str, Any]:
    """A job of commands, which nobody runs."""
    return {"id": job, "command": "true", "output": f"out-{job}", **more}


def sleeps(job: str, tasks: int = 4, work: float = 4.0, **more: Any) -> dict[str, Any]:
    """A job of one phase whose tasks sleep."""
    of_phase = {key: more.pop(key) for key in ("slots", "gang", "slots_max") if key in more}
    phase = {"name": "nap", "tasks": tasks, "work": work, **of_phase}
    return {"id": job, "phases": [phase], **more}


def flow_of_phases(job: str, **more: Any) -> dict[str, Any]:
    """Two phases side by side, and a third after both."""
    first = {"name": "a", "tasks": 3, "work": 4.0}
    second = {"name": "b", "tasks": 2, "work": 2.0}
    last = {"name": "c", "tasks": [1.0, 2.0], "after": ["a", "b"], "slots_max": 1}
    return {"id": job, "phases": [first, second, last], **more}


def of_kinds(job: str, **more: Any) -> dict[str, Any]:
    """Maps, copies and reduces of stated work; each reduce continues its copy."""
    maps = {"name": "map", "kind": "map", "tasks": 4, "work": 4.0}
    copies = {"name": "copy", "kind": "reduce", "tasks": 2, "work": 1.0, "after": ["map"]}
    copies |= {"slow_start": 0.5, "copy": 0.5}
    return {"id": job, "phases": [maps, copies], **more}


def upper(lines: Any) -> Any:
    """Records in capitals."""
    return (line.upper() for line in lines)


def count(lines: Any) -> Any:
    """The number of records."""
    yield sum(1 for _ in lines)


def number(task: int) -> int:
    """The number of the task."""
    return task


def add_up(task: int, results: Any) -> int:
    """The task, and the sum of the results of the phase before."""
    return task + sum(results["first"])


def calls() -> list[Calls]:
    """Calls that pass their results on."""
    first, second = Phase("first", Tasks(4)), Phase("second", Tasks(2), after={"first"})
    return [Calls(Job("passed", (first, second)), {"first": number, "second": add_up})]


def step(number: int) -> Any:
    """What earlier attempts have kept."""
    return slotwise_task.kept(default=0), number


def steps() -> list[Any]:
    """Calls that keep values, and a job for which they stop."""
    long = Calls(Job("long", (Phase("step", Tasks(2)),), pool="old"), step)
    return [long, Job("short", (Phase("nap", Tasks(3, 1.0)),), arrival=0.5, pool="new")]


def fails(why: str) -> None:
    """A call that fails."""
    raise ValueError(why)


def pair(one: Any, other: Any) -> tuple[Any, Any]:
    """Two values."""
    return one, other


def near(job: str, **more: Any) -> dict[str, Any]:
    """A job whose tasks have their input on hosts."""
    blocks = [["a"], ["b"], ["c"], ["a", "b"], ["c"], ["a"]]
    phase = {"name": "read", "tasks": 6, "work": 6.0, "blocks": blocks}
    return {"id": job, "phases": [phase], **more}


def dataflow_by_files() -> list[Any]:
    """Two stages that pass records by files."""
    flow = Dataflow()
    lines = flow.node(upper, flow.read("text.txt", split_bytes=400), name="upper")
    flow.write(flow.node(count, lines.file(by=str), copies=2, name="count"))
    return [flow.job("files", "out-files")]


def dataflow_gang() -> list[Any]:
    """Two groups that start together, one of two nodes, and a node that reads their files."""
    flow = Dataflow()
    lines = flow.node(upper, flow.read("text.txt"), name="upper")
    again = flow.node(upper, lines.shm(), name="again")
    sums = flow.node(count, again.tcp(by=str), name="count")
    flow.write(sums, flow.node(count, sums.file(), name="all"))
    return [flow.job("gang", "out-gang"), Job("other", (Phase("nap", Tasks(5, 1.0)),))]
