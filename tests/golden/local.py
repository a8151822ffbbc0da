"""Golden logs of the local backend and of sessions, on a scripted machine.

Each case is a script: jobs, what worker processes do, and what happens when. Only
golden/machine.py knows how the backend is made.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import slotwise
from golden.golden import Case
from golden.machine import At, Does, Script, scripted
from slotwise import task as slotwise_task
from slotwise.scheduler import ALLOCATORS, QUEUEINGS
from slotwise import Calls, Cluster, Dataflow, Host, Job, Phase, Pool, Preemption, Tasks

WORDS = "to be or not to be that is the question whether it is nobler in the mind".split()
TEXT = "".join(f"{word} {word[::-1]} {number % 7}\n" for number, word in enumerate(WORDS * 5))

UNEVEN = tuple(map(Does, (1.0, 0.5, 1.75, 0.25, 2.0)))
"""Tasks of different lengths, for scripts in which nothing else happens."""


# Jobs


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


def dataflow_by_files() -> list[Any]:
    """Two stages that pass records by files."""
    flow = Dataflow()
    lines = flow.node(upper, flow.read("text.txt", split_bytes=400), name="upper")
    flow.write(flow.node(count, lines.file(by=str), copies=2, name="count"))
    return [flow.job("files", "out-files")]


def dataflow_gang() -> list[Any]:
    """Two groups that start together: one of two nodes joined by memory, one by TCP."""
    flow = Dataflow()
    lines = flow.node(upper, flow.read("text.txt"), name="upper")
    again = flow.node(upper, lines.shm(), name="again")
    flow.write(flow.node(count, again.tcp(by=str), name="count"))
    return [flow.job("gang", "out-gang"), Job("other", (Phase("nap", Tasks(5, 1.0)),))]


# Runs

Jobs = Sequence[Mapping[str, Any]] | Callable[[], list[Any]]


def run(
    jobs: Jobs, script: Script, scheduler: str = "fair", *, times: int = 1, **options: Any
) -> Case:
    """A case in which jobs run on the local backend; the log is that of the last run.

    Options of `slotwise.run`, and further keys of the workload as `workload`.
    """
    workload = options.pop("workload", {})

    def write(log: Path) -> None:
        for _ in range(times):
            if callable(jobs):
                given: Any = jobs()
            else:
                given = "workload.yaml"
                Path(given).write_text(json.dumps({"slotwise": 1, "jobs": jobs, **workload}))
            with scripted(script), suppress(slotwise.RunInterrupted):
                slotwise.run(given, scheduler, log=log, **options)

    return _settled(write)


def session(
    script: Script, scheduler: str = "fair", slots: Any = 2, *, times: int = 1, **options: Any
) -> Case:
    """A case in which users use a session; the log is that of the last one."""

    def write(log: Path) -> None:
        for _ in range(times):
            with scripted(script) as machine, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of other sessions on this machine.
                opened = slotwise.Session(slots, scheduler, log=log, **options)
                with suppress(KeyboardInterrupt):
                    machine.use(opened)
                    opened.close()

    return _settled(write)


def _settled(write: Case) -> Case:
    """A case in a folder of its own, whose log can be replayed, and names no versions."""

    def case(log: Path) -> None:
        log = log.absolute()
        with TemporaryDirectory() as folder, chdir(folder):
            Path("text.txt").write_text(TEXT)
            write(log)
            place = os.getcwd()
        head, *turns = log.read_text().replace(place, "/folder").splitlines(keepends=True)
        header = json.loads(head) | {"versions": {}}
        log.write_text(f"{json.dumps(header, separators=(',', ':'))}\n{''.join(turns)}")
        assert slotwise.replay(log).is_identical

    return case


HOSTS = [
    {"name": "a", "slots": 2, "rack": "r"},
    {"name": "b", "slots": 2, "rack": "r", "speed": 0.5},
    {"name": "c", "slots": 1, "rack": "s"},
]
KINDS = {"map": 3, "reduce": 2}
EARLY = {"shuffle": {"slow_start": 0.25}}
SPLIT = {"shuffle": {"slow_start": 0.25, "split": True, "copies_per_slot": 1}}
POOLS = [{"name": "low"}, {"name": "high", "weight": 3, "slots_min": 2}]
TAKES = {"preemption": {"least_after": 0.5, "fair_after": 1.0, "grace": 1.0}, "pools": POOLS}
KEEPS, TORN = Does(6.0, stop=(0.25, 2.5)), Does(6.0, stop=(0.5, 1, "by a hook"))
NESTED = [
    {"name": "team", "weight": 2, "slots_max": 3, "preemption": {"fair_after": 0.75}},
    {"name": "one", "parent": "team", "jobs_max": 1},
    {"name": "two", "parent": "team", "policy": "fifo", "slots_min": 1},
    {"name": "rest", "job_weights": "size"},
]
MIXED = [
    sleeps("long", 6, 9.0, pool="rest", priority="low"),
    flow_of_phases("graph", pool="one", arrival=0.5, weight=2.0, deadline=6.0),
    sleeps("wide", 2, 3.0, slots=2, arrival=1.0, pool="rest", deadline=9.0),
    flow_of_phases("after", pool="one", arrival=1.25, deadline=12.0),
    sleeps("gang", 3, 3.0, gang=True, arrival=1.5, pool="two", priority="high", deadline=7.0),
    sleeps("last", 3, 1.5, arrival=4.0, pool="two", deadline=5.5),
]
TROUBLES = (
    *(Does(1.0), Does(0.5, "fails", "no luck"), Does(0.75), Does(0.5, "killed", 9), Does(2.0)),
    *(Does(0.25, "exits", 3), Does(1.0), Does(0.5, "garbles"), Does(1.5, stop=(0.25, 1.0))),
)
NEAR = {"blocks": [["a"], ["b"], ["c"], ["a", "b"], ["c"], ["a"]]}


WAYS: dict[str, list[dict[str, Any]]] = {
    "greedy": [{}],
    "delay": [{}, {"waits": (0.5, 1.0), "levels": "restart"}],
    "flow": [{}, {"waits": (0.25, 0.5), "core_cost": 2.0, "move_within": 1.0}],
}
"""Options of the assigners."""


def near(job: str, **more: Any) -> dict[str, Any]:
    """A job whose tasks have their input on hosts."""
    return {"id": job, "phases": [{"name": "read", "tasks": 6, "work": 6.0, **NEAR}], **more}


def runs() -> dict[str, Case]:
    """Runs in which every allocator and assigner occurs."""
    found: dict[str, Case] = {}
    reads = Does(1.0), Does(0.5), Does(1.5), Does(3.0, "copies", 1.25), Does(0.75)
    for name in ("fifo", "fair", "flex"):
        two = [words(), words("more", arrival=1.0)]
        early = Script(reads)
        found[f"early-{name}"] = run(two, early, name, slots=KINDS, workload=EARLY)
        stated = [words(), of_kinds("stated", arrival=0.5)]
        split = Script(others=UNEVEN)
        found[f"split-{name}"] = run(stated, split, name, slots=KINDS, workload=SPLIT)
    for name in ALLOCATORS:
        pools = {"pools": NESTED, "preemption": {"grace": 0.5}}
        mixed = Script(others=UNEVEN)
        found[f"mixed-{name}"] = run(MIXED, mixed, name, slots=4, workload=pools)
        troubles = Script(others=TROUBLES)
        found[f"troubles-{name}"] = run(MIXED, troubles, name, slots=4, workload=pools)
    for name in ("fair", "flex"):
        for penalty in ("stretch", "tardiness", "tardy", "lateness", "makespan"):
            due = [
                one for one in MIXED if penalty in ("stretch", "makespan") or "deadline" in one
            ]
            found[f"{penalty}-{name}"] = run(
                due, Script(others=UNEVEN), name, slots=4, objective=penalty, workload=pools
            )
    cluster = {"cluster": {"hosts": HOSTS, "grace": 2.0}}
    for assigner in ("greedy", "delay", "flow"):
        for name in ("fair", "flex"):
            jobs = [near("one"), near("two", arrival=0.5), sleeps("any", 3, arrival=0.75)]
            for number, more in enumerate(WAYS[assigner]):
                found[f"{assigner}-{number}-{name}"] = run(
                    jobs, Script(others=UNEVEN), name, assigner=assigner, **more,
                    emulate_hosts=True, workload=cluster,
                )  # fmt: skip
    many = [sleeps(f"job-{n:03}", 1, arrival=n / 256, weight=1.0 + n % 3) for n in range(150)]
    for name in ("fair", "flex"):
        found[f"many-{name}"] = run(many, Script(others=[Does(1 / 8)]), name, slots=4)
    stated = [of_kinds("one"), of_kinds("two", arrival=0.5, deadline=8.0)]
    machines = {"cluster": {"hosts": [{**host, "slots": 1} for host in HOSTS]}}
    for name in QUEUEINGS:
        case = run(stated, Script(others=UNEVEN), name, emulate_hosts=True, workload=machines)
        found[f"queues-{name}"] = case
    return found


def troubles() -> dict[str, Case]:
    """Runs in which something goes wrong, or is taken back."""
    pair = [sleeps("old", 6, 24.0, pool="low"), sleeps("new", 4, arrival=1.0, pool="high")]
    cluster = {"cluster": {"hosts": HOSTS, "grace": 2.0}}
    hosts = {"emulate_hosts": True, "workload": cluster}
    lost = [Does(1.0)] * 5 + [Does(0.5, "lacks", ("map", (1, 1), (3, 1))), Does(0.75)]
    gang = [Does(1.0), Does(1.5, "fails", "it broke"), *[Does(1.0, "returns", (9, 90))] * 40]
    returns = Does(1.0, "returns"), Does(0.5, "returns"), Does(2.0, "returns")
    odd = Does(0.5, "fails", "exit code 1"), Does(0.5, "killed", 11), Does(0.25, "killed", 9)
    return {
        "kept": run(pair, Script([KEEPS, TORN] * 2), slots=4, workload=TAKES),
        "killed": run(pair, Script([Does(6.0)] * 4), slots=4, workload=TAKES),
        "kept-flex": run(pair, Script(others=[KEEPS, *UNEVEN]), "flex", slots=4, workload=TAKES),
        "kept-calls": run(steps, Script([KEEPS, KEEPS, *UNEVEN]), slots=2,
                          preemption=Preemption(fair_after=0.5, grace=2.0)),
        "lost-output": run([words()], Script(lost), slots=KINDS, workload=EARLY),
        "lost-calls": run(calls, Script([*[Does(1.0)] * 4,
                                         Does(0.5, "lacks", ("first", (2, 1)))]), slots=2),
        "given-up": run([shell("bad", tasks=3), sleeps("good")],
                        Script([returns[0], *odd * 3], others=returns), slots=2,
                        attempts_max=2),
        "commands": run([shell("a", tasks=4), shell("b", tasks=2, arrival=0.5)],
                        Script([*returns, *odd], others=returns), slots=2),
        "lost-workers": run([sleeps("lost", 3)], Script(others=[Does(0.25, "killed", 9)]),
                            slots=2),
        "idle-deaths": run([sleeps("one", 2), sleeps("two", 3, arrival=3.0)],
                           Script(at=[At(1.5, "kill", 1), At(3.5, "kill", 0, 2)]), slots=2),
        "calls": run(calls, Script(others=UNEVEN), slots=3),
        "files": run(dataflow_by_files, Script(others=UNEVEN), slots=2),
        "gang": run(dataflow_gang, Script(gang), slots=4),
        "gang-flex": run(dataflow_gang, Script(gang[2:]), "flex", slots=4),
        "wide-gang": run([sleeps("wide", 2, slots=2, gang=True), sleeps("thin", 7, arrival=0.5)],
                         Script([Does(1.0), Does(2.0, "killed", 9)]), slots=4),
        "unresponsive": run([near("one"), sleeps("two", 5)], Script(
            others=UNEVEN, at=[At(1.0, "stop", 2, 3), At(1.5, "stop", 4), At(2.25, "continue", 2),
                               At(2.5, "continue", 3)]), **hosts),
        "overdue": run([near("one"), sleeps("two", 8, 16.0)], Script(
            others=[Does(2.0)], at=[At(1.0, "stop", 0, 1), At(4.0, "continue", 1),
                                    At(9.0, "continue", 0)]), **hosts),
        "stuck": run([sleeps("one", 8, 16.0)], Script(
            others=[Does(2.0)], at=[At(1.0, "stop", 1)]), **hosts),
        "interrupted": run([words(), sleeps("nap")], Script(
            others=UNEVEN, at=[At(2.5, "interrupt")]), slots=KINDS | {"task": 1}),
        "history": run([words(), words("more")], Script(others=UNEVEN), "flex", times=3,
                       slots=KINDS, history="history.db"),
    }  # fmt: skip


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


def sessions() -> dict[str, Case]:
    """Cases of sessions."""
    found: dict[str, Case] = {}
    some = [
        At(0.25, "submit", number, 1, to="a"),
        At(0.25, "submit", pair, "@a", 2, to="b"),
        At(0.25, "submit", pair, "@b", "@a"),
        At(0.5, "submit", fails, "why", to="failed"),
        At(0.5, "submit", pair, "@failed", 1),
        At(0.75, "submit", number, 2, to="c"),
        At(1.0, "submit", number, 3, to="d"),
        At(1.25, "d.cancel"),
        At(1.25, "submit", number, 4, to="e"),
        At(1.5, "change", "@e", priority="high", weight=3.0, pool="other", deadline=4.0),
        At(1.75, "explain", "@e"),
        At(2.0, "jobs"),
        At(2.0, "c.result"),
    ]
    of_executor = [
        At(0.0, "executor", name="many", pool="one", weight=2.0, deadline=9.0, to="x"),
        At(0.0, "x.submit", number, 1, to="first"),
        At(0.25, "x.map", number, range(7), chunksize=3, to="chunks"),
        At(0.5, "executor", name="wide", slots=2, pool="two", slots_max=2, to="y"),
        At(0.5, "y.map", pair, [1, 2, 3], [4, 5, 6], to="pairs"),
        At(0.75, "first.cancel"),
        At(1.0, "map", number, range(60), ahead=3, pool="two", to="lazy"),
        *[At(3.0, "lazy.__next__")] * 24,
        At(15.0, "lazy.close"),
        At(15.0, "map", number, range(10), chunksize=4, name="sized", to="sized"),
        At(15.5, "x.submit", number, 9),
        At(15.5, "x.submit", number, 10),
        At(15.5, "x.shutdown", wait=False, cancel_futures=True),
        At(16.0, "y.shutdown", wait=False),
    ]
    changing = [
        At(0.0, "run", {**sleeps("long", 8, 16.0, pool="low")}, to="long"),
        At(0.5, "run", {**sleeps("new", 4, pool="high")}, to="new"),
        At(0.75, "run", {**words(), "pool": "low"}, to="words"),
        At(0.75, "command", "true", "out-command", tasks=3, pool="high", to="command"),
        At(1.0, "set_pools", [Pool("low", 4.0), Pool("high", slots_max={"task": 1})]),
        At(1.5, "set_objective", "stretch"),
        At(2.0, "change", "@new", pool="low"),
        At(2.25, "run", {**sleeps("new", 1)}, to="again"),
        At(2.5, "set_pools", [Pool("high", jobs_max=1), Pool("low", parent=None, weight=0.5)]),
        At(3.0, "long.cancel"),
        At(3.25, "run", Calls(Job("calls", (Phase("n", Tasks(3)),)), number)),
        At(3.5, "set_pools", []),
    ]
    hosts = [
        At(0.0, "run", {**near("near", pool="p"), "phases": [
            {"name": "read", "tasks": 12, "work": 12.0}]}),
        At(0.25, "run", words(), to="words"),
        At(0.5, "add_host", "d", 2, rack="s"),
        At(1.25, "remove_host", "a"),
        At(2.0, "remove_host", "b", drain=False),
        At(2.5, "add_host", "a2", {"task": 1}, speed=0.5),
        At(3.0, "remove_host", "c", drain=False),
        At(3.25, "remove_host", "d"),
        At(3.5, "remove_host", "a2", drain=False),
        At(4.5, "add_host", "b", 3),
        At(5.5, "stop", 8, 9, 10),
        At(6.0, "add_host", "e", 1),
        At(6.75, "continue", 8, 9),
        At(7.25, "continue", 10),
    ]  # fmt: skip
    cluster = Cluster(tuple(Host(**host | {"slots": {"task": host["slots"]}}) for host in HOSTS),
                      grace=1.0)  # fmt: skip
    returns = [*UNEVEN, Does(0.5, "returns")]
    for name in ("fifo", "fair", "flex", "las", "uwfq"):
        found[f"calls-{name}"] = session(Script(others=UNEVEN, at=some), name)
        found[f"executor-{name}"] = session(Script(others=UNEVEN, at=of_executor), name, 3)
        given = Script(others=UNEVEN, at=changing)
        found[f"changing-{name}"] = session(given, name, 3, pools=[Pool("low"), Pool("high")])
    for assigner in ("greedy", "delay", "flow"):
        given = Script(others=UNEVEN, at=hosts, commit_seconds=1.0)
        found[f"hosts-{assigner}"] = session(given, "fair", cluster, assigner=assigner)
    closing = [At(0.0, "submit", number, n) for n in range(5)]
    closing += [At(0.0, "run", words(), to="words")]
    deaths = [At(0.0, "executor", to="x"), *(At(0.0, "x.submit", number, n) for n in range(6))]
    takes = {"preemption": Preemption(0.5, 1.0, grace=1.0),
             "pools": [Pool("one", slots_min={"task": 1}), Pool("two")]}  # fmt: skip
    long = [At(0.0, "executor", pool="two", to="x"), *[At(0.0, "x.submit", step, 1)] * 3]
    long += [At(1.0, "executor", pool="one", to="y"), *[At(1.0, "y.submit", number, 1)] * 3]
    leaves = [At(0.0, "run", words(), to="words"), At(3.25, "remove_host", "a"),
              At(3.25, "remove_host", "b", drain=False), At(3.5, "remove_host", "a", drain=False),
              At(3.75, "words.cancel"), At(4.0, "add_host", "c", 1)]  # fmt: skip
    two = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})))
    return found | {
        "commit-leaves": session(Script(at=leaves, commit_seconds=1.0), slots=two),
        "cancelled": session(Script(others=UNEVEN, at=[*closing, At(1.75, "close", cancels=True)])),
        "ctrl-c": session(Script(others=[Does(2.0)], at=[
            *closing, At(0.5, "close"), At(1.0, "interrupt")])),
        "dying-calls": session(Script(others=[Does(0.25, "killed", 9), Does(0.5),
                                              Does(0.25, "exits", 1)], at=deaths)),
        "kept-calls-session": session(Script([KEEPS, KEEPS, *UNEVEN], long), **takes),
        "history-session": session(Script(others=returns, at=closing[-1:]), "flex", 3, times=2,
                                   history="history.db"),
    }  # fmt: skip


def cases() -> dict[str, Case]:
    """The cases by name."""
    return runs() | troubles() | sessions()
