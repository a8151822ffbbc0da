"""Golden logs of runs on hosts with agents, by scripted agents.

A script has

workload        as in a workload file; FOLDER stands for the folder of `files`
workers         the workers of Dask by name: "slots"; "joins": when, if not at the start;
                "answers": the seconds until its agent answers each time that it is asked, and
                why it is refused ("" if it is not); "refuses_leases"
outcomes        for each job what becomes of its tasks in the order in which they start, again
                and again: seconds (None: it never ends), status, value. "runs" runs its code;
                "lacks" is an error: output of a phase, by task and attempt, is lost
stops           for each job that heeds stop requests: seconds, and the value that it keeps
events          what happens to hosts: time, what, host, details
requests        if jobs arrive as in a session: time, what, details
commit_seconds  how long a commit takes

and the options of the run. `agents_backend.py` joins it to the code that it drives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from golden.agents_backend import write_log
from golden.fake_agents import Script
from golden.golden import Case


def job(name: str, *tasks: float | tuple[float, int], **details: Any) -> dict[str, Any]:
    """A job of phases one after another, each with the work and the number of its tasks."""
    phases = []
    for number, one in enumerate(tasks):
        work, count = one if isinstance(one, tuple) else (one, 4)
        phase: dict[str, Any] = {"name": f"p{number}", "work": work * count, "tasks": count}
        phases.append(phase | ({"after": [f"p{number - 1}"]} if number else {}))
    return {"id": name, "phases": phases, **details}


DONE = [[0.7, "done"], [0.4, "done"], [1.1, "done"]]
LONG = [[5.0, "done"], [7.0, "done"], [6.0, "done"]]
MIXED = [
    [0.7, "done"],
    [0.2, "error", "ValueError: it is wrong"],
    [0.5, "exited", "its worker process has ended itself (exit code 3)"],
    [0.9, "lost", "its worker process was killed (SIGKILL)"],
    [0.4, "done"],
    [0.6, "unreadable", "the result cannot be received: it is too large"],
    [0.8, "done"],
    [0.3, "done"],
]
TWO: dict[str, dict[str, Any]] = {"red": {"slots": 2}, "blue": {"slots": 2}}
THREE = {**TWO, "green": {"slots": 3}}
POOLS = [
    {"name": "production", "slots_min": 3, "weight": 2.0},
    {"name": "research", "slots_max": 4, "jobs_max": 2},
    {"name": "night", "parent": "research", "policy": "fifo"},
    {"name": "day", "parent": "research", "weight": 3.0},
]
PREEMPTION = {"least_after": 0.5, "fair_after": 2.0, "grace": 0.6}

MANY = [
    job("a", (1.0, 8), (0.5, 2), pool="night", deadline=12.0),
    job("b", (1.5, 6), pool="day", arrival=0.3, deadline=9.0, priority="high"),
    job("c", (0.5, 7), (1.0, 3), pool="production", arrival=1.0, weight=2.0, deadline=6.0),
    job("d", (2.0, 5), arrival=1.1, steps=[[8.0, 3.0]], deadline=20.0),
    job("e", (0.2, 9), pool="night", arrival=2.0, deadline=30.0, priority="very_low"),
]


def many(scheduler: str, outcomes: Any = DONE, **more: Any) -> Script:
    """Jobs in nested pools, on hosts of which one joins later and one leaves."""
    return {
        "workload": {"jobs": MANY, "pools": POOLS, "preemption": PREEMPTION},
        "scheduler": scheduler,
        "workers": {**THREE, "gold": {"slots": 1, "joins": 3.2}},
        "outcomes": dict.fromkeys("abcde", outcomes),
        "events": [[4.4, "leaves", "blue"]],
        **more,
    }


def hosts(*events: list[Any], outcomes: Any = LONG, **more: Any) -> Script:
    """Two jobs of long tasks while something happens to hosts."""
    jobs = [job("one", (5.0, 8), (2.0, 3)), job("two", (6.0, 6), arrival=0.5)]
    return {
        "workload": {"jobs": jobs},
        "workers": THREE,
        "outcomes": {"one": outcomes, "two": outcomes},
        "events": list(events),
        **more,
    }


def words(**more: Any) -> Script:
    """A MapReduce job whose tasks run for real, and one that waits behind it."""
    text = "the quick brown fox\njumps over the lazy dog\n" * 4
    count = {
        "id": "words",
        "program": "wordcount",
        "inputs": "FOLDER/*.txt",
        "output": "FOLDER/counted",
        "split_bytes": 60,
        "reducers": 3,
        "input_hosts": {"FOLDER/a.txt": ["red", "blue"], "FOLDER/b.txt": ["green"]},
    }
    return {
        "workload": {"jobs": [count, job("later", (1.0, 4), arrival=1.0)]},
        "workers": THREE,
        "outcomes": {
            "words": [[0.7, "runs"], [1.2, "runs"], [0.5, "runs"]],
            "later": DONE,
        },
        "files": {"a.txt": text, "b.txt": text.upper()},
        **more,
    }


WIDE = [
    {
        "id": "wide",
        "phases": [
            {"name": "single", "work": 6.0, "tasks": 6},
            {"name": "double", "work": 6.0, "tasks": 4, "slots": 2},
            {"name": "gang", "work": 6.0, "tasks": 4, "gang": True, "after": ["single"]},
        ],
    },
    job("narrow", (1.0, 9), arrival=0.1),
]

GANGS = [
    {
        "id": name,
        "arrival": at,
        "phases": [{"name": "gang", "work": 2.0 * tasks, "tasks": tasks, "gang": True}],
    }
    for name, at, tasks in (("first", 0.0, 3), ("second", 0.2, 4), ("third", 0.3, 5))
] + [job("urgent", (1.0, 9), arrival=9.0, pool="production")]

REQUESTS = [
    [0.1, "job", "a"],
    [0.1, "job", "b"],
    [0.9, "change", "a", "very_high", 3.0, "day", 40.0],
    [1.0, "job", "c"],
    [1.3, "pools", [{"name": "production", "slots_min": 5}, {"name": "day", "slots_max": 2}]],
    [1.6, "drain", "red"],
    [2.0, "objective", "tardiness", "max"],
    [2.1, "job", "d"],
    [2.5, "cancel", "b"],
    [3.0, "remove", "blue"],
    [3.1, "remove", "nowhere"],
    [3.3, "job", "e"],
    [3.4, "drain", "green"],
    [3.4, "drain", "green"],
    [9.0, "close"],
]

SCRIPTS: dict[str, Script] = {
    "plain": {
        "workload": {"jobs": [job("one", 1.0, (0.5, 3)), job("two", (2.0, 2), arrival=0.5)]},
        "workers": TWO,
        "outcomes": {"one": DONE, "two": DONE},
    },
    **{f"many-{name}": many(name) for name in ("fifo", "fair", "las", "uwfq", "flowflex")},
    "many-flex": many(
        "flex",
        workload={
            "jobs": MANY,
            "pools": POOLS,
            "preemption": PREEMPTION,
            "objective": {"penalty": "tardiness"},
        },
        options={"epoch_seconds": 0.5},
    ),
    # Tasks that heed stop requests and keep a value, that keep none, and that heed none.
    "stops": many("fair", LONG, stops={"a": [0.2, "kept"], "b": [0.3, ""], "e": [0.9, "kept"]}),
    "mixed": many("fair", MIXED),
    "given-up": many("fair", [[0.3, "error", "ValueError: no"]], options={"attempts_max": 2}),
    "few-slots": many("las", dask_slots=1),
    # Less than its grace, so that nothing comes of it; then longer; then for ever.
    "silent": hosts(
        [1.0, "silent", "red"],
        [5.5, "speaks", "red"],
        [9.0, "silent", "blue"],
        [40.0, "speaks", "blue"],
    ),
    # After its grace its tasks begin again elsewhere; what it still does is ignored.
    "overdue": hosts(
        [1.0, "silent", "green"],
        [17.0, "speaks", "green"],
        [18.0, "silent", "blue"],
        [33.2, "speaks", "blue"],
        outcomes=[[14.0, "done"], [17.5, "done"], [6.0, "done"]],
    ),
    "overdue-leaves": hosts(
        [1.0, "silent", "green"], [20.0, "leaves", "green"], outcomes=[[14.0, "done"]]
    ),
    "all-silent": hosts(
        *[[2.0, "silent", name] for name in THREE],
        *[[9.0, "speaks", name] for name in THREE],
    ),
    "stopped-workers": hosts(
        [0.5, "stopped", "red", [0]],
        [1.5, "stopped", "green", [0, 1, 2]],
        [6.5, "stopped", "green", [1]],
        [8.5, "stopped", "green", []],
    ),
    "workers-die": hosts(
        [1.0, "dies", "red", 0, "lost", "its worker process was killed (SIGKILL)"],
        [1.0, "dies", "red", 1, "exited", "its worker process has ended itself (exit code 1)"],
        [2.0, "dies", "blue", 1, "lost", "its worker process was killed (SIGSEGV)"],
        [2.0, "dies", "red", 0, "lost", "its worker process was killed (SIGKILL)"],
    ),
    # An answer of an attempt that was over before comes when another runs in its slot.
    "late-answers": hosts(
        [6.0, "answers", "red", 0, 1, "done", b"N.", 5.0, 0],
        [6.5, "answers", "green", 2, 3, "error", b"N.", 5.0, 0],
    ),
    # Connections that end are made again while Dask knows the worker.
    "disconnects": hosts([1.5, "disconnects", "red"], [6.1, "disconnects", "green"]),
    "leaves": hosts([1.5, "leaves", "red"], [3.0, "leaves", "green"], dask_slots=2),
    "fails": hosts(
        [1.5, "fails", "blue", "has lost its folder /somewhere, which somebody has removed"],
        [3.0, "answers", "green", "it is garbled"],
    ),
    "all-leave": hosts(
        *[[1.5, "leaves", name] for name in THREE],
        workers={**THREE, "gold": {"slots": 2, "joins": 12.0}},
    ),
    "scheduler-ends": hosts(
        [1.5, "ends", "closed"], *[[8.0, "disconnects", name] for name in THREE]
    ),
    "refused": hosts(
        workers={
            "red": {"slots": 2},
            "blue": {"slots": 2, "answers": [[0.1, "it runs Python 3.9"]]},
            "green": {"slots": 2, "answers": [[0.2, "left"], [0.1, "it is full"], [0.3, ""]]},
            "gold": {"slots": 2, "answers": [[15.0, ""]]},
            "grey": {"slots": 2, "joins": 4.0, "refuses_leases": True},
            "white": {"slots": 1, "joins": 6.0, "answers": [[0.4, "left"], [0.0, ""]]},
        },
    ),
    "words": words(),
    # Map output on green is lost: once while reduces wait for it, once when it is not needed.
    "files-lost": words(events=[[1.6, "leaves", "green"], [2.5, "disconnects", "red"]]),
    "output-lost": words(
        outcomes={
            "words": [[0.5, "runs"]] * 6
            + [[0.4, "lacks", ["map", [[0, 1], [3, 1]], "/map-0-1/part"]]]
            + [[0.6, "runs"]] * 7,
            "later": DONE,
        }
    ),
    "slow-commit": words(commit_seconds=4.0),
    "host-lost-at-commit": words(
        commit_seconds=6.0, events=[[3.0, "disconnects", name] for name in THREE]
    ),
    "near-input": words(options={"assigner": "delay", "waits": (0.5, 1.5)}),
    "flow-to-input": words(
        options={"assigner": "flow", "waits": (0.5, 1.5), "move_within": 1.0}
    ),
    "wide": hosts(
        [1.7, "disconnects", "green"],
        workload={"jobs": WIDE},
        outcomes=None,
    )
    | {"outcomes": {"wide": DONE, "narrow": MIXED}},
    "gangs": hosts(
        [1.7, "disconnects", "green"],
        [6.0, "dies", "red", 0, "lost", "its worker process was killed (SIGKILL)"],
        workload={"jobs": GANGS, "pools": POOLS, "preemption": PREEMPTION},
        outcomes=None,
    )
    | {"outcomes": {"first": DONE, "second": MIXED, "third": LONG, "urgent": DONE}},
    "requests": many("fair", LONG[::-1], requests=REQUESTS, events=[]),
    "requests-flex": many(
        "flex", DONE, requests=REQUESTS, rest_seconds=0.05, events=[[1.2, "disconnects", "red"]]
    ),
    "words-drained": words(
        outcomes={"words": [[0.5, "runs"]], "later": DONE},
        requests=[
            [0.2, "job", "words"],
            [0.5, "drain", "red"],
            [0.5, "drain", "green"],
            [12.0, "close"],
        ],
    ),
    "words-on-request": words(
        requests=[
            [0.2, "job", "words"],
            [0.6, "drain", "green"],
            [1.4, "job", "later"],
            [1.5, "remove", "red"],
            [12.0, "close"],
        ],
    ),
}


def cases() -> dict[str, Case]:
    """The cases by name."""
    return {name: partial(write_log, script) for name, script in SCRIPTS.items()}
