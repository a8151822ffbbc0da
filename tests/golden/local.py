"""Golden logs of the local backend and of sessions, on a scripted machine.

Each case is a script: jobs, what worker processes do, and what happens when. Only
golden/local_machine.py knows how the backend is made.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import slotwise
from golden.golden import Case
from golden.local_jobs import (
    TEXT,
    calls,
    dataflow_by_files,
    dataflow_gang,
    fails,
    flow_of_phases,
    near,
    number,
    of_kinds,
    pair,
    shell,
    sleeps,
    step,
    steps,
    words,
)
from golden.local_machine import scripted
from golden.script import At, Does, Script
from slotwise import Block, Calls, Cluster, Host, Job, Phase, Pool, Preemption, Tasks
from slotwise.policy.scheduler import ALLOCATORS, QUEUEINGS

UNEVEN = tuple(map(Does, (1.0, 0.5, 1.75, 0.25, 2.0)))
"""Tasks of different lengths, for scripts in which nothing else happens."""

KEEPS, TORN = Does(6.0, stop=(0.25, 2.5)), Does(6.0, stop=(0.5, 1, "by a hook"))
TROUBLES = (
    *(Does(1.0), Does(0.5, "fails", "no luck"), Does(0.75), Does(0.5, "killed", 9), Does(2.0)),
    *(Does(0.25, "exits", 3), Does(1.0), Does(0.5, "garbles"), Does(1.5, stop=(0.25, 1.0))),
)
ODD = Does(0.5, "fails", "exit code 1"), Does(0.5, "killed", 11), Does(0.25, "killed", 9)
LOSES = *([Does(1.0)] * 5), Does(0.5, "lacks", ("map", (1, 1), (3, 1))), Does(0.75)
RETURNS = [Does(seconds, "returns", (9, 90)) for seconds in (1.0, 0.5, 2.0)]

HOSTS = [
    {"name": "a", "slots": 2, "rack": "r"},
    {"name": "b", "slots": 2, "rack": "r", "speed": 0.5},
    {"name": "c", "slots": 1, "rack": "s"},
]
KINDS = {"map": 3, "reduce": 2}
EARLY = {"shuffle": {"slow_start": 0.25}}
SPLIT = {"shuffle": {"slow_start": 0.25, "split": True, "copies_per_slot": 1}}
ON_HOSTS = {"emulate_hosts": True, "cluster": {"hosts": HOSTS, "grace": 2.0}}
ON_MACHINES = {
    "emulate_hosts": True,
    "cluster": {"hosts": [{**host, "slots": 1} for host in HOSTS]},
}
TAKES = {
    "preemption": {"least_after": 0.5, "fair_after": 1.0, "grace": 1.0},
    "pools": [{"name": "low"}, {"name": "high", "weight": 3, "slots_min": 2}],
}
NESTED = {
    "preemption": {"grace": 0.5},
    "pools": [
        {"name": "team", "weight": 2, "slots_max": 3, "preemption": {"fair_after": 0.75}},
        {"name": "one", "parent": "team", "jobs_max": 1},
        {"name": "two", "parent": "team", "policy": "fifo", "slots_min": 1},
        {"name": "rest", "job_weights": "size"},
    ],
}
MIXED = [
    sleeps("long", 6, 9.0, pool="rest", priority="low"),
    flow_of_phases("graph", pool="one", arrival=0.5, weight=2.0, deadline=6.0),
    sleeps("wide", 2, 3.0, slots=2, arrival=1.0, pool="rest", deadline=9.0),
    flow_of_phases("after", pool="one", arrival=1.25, deadline=12.0),
    sleeps("gang", 3, 3.0, gang=True, arrival=1.5, pool="two", priority="high", deadline=7.0),
    sleeps("last", 3, 1.5, arrival=4.0, pool="two", deadline=5.5),
]
WAYS: dict[str, list[dict[str, Any]]] = {
    "greedy": [{}],
    "delay": [{}, {"waits": (0.5, 1.0), "levels": "restart"}],
    "flow": [{}, {"waits": (0.25, 0.5), "core_cost": 2.0, "move_within": 1.0}],
}
"""Options of the assigners."""

Jobs = Sequence[Mapping[str, Any]] | Callable[[], list[Any]]
OF_SCRIPTS = {one.name for one in fields(Script)}
OF_WORKLOADS = "cluster", "pools", "preemption", "shuffle"


def run(jobs: Jobs, scheduler: str = "fair", *, times: int = 1, **options: Any) -> Case:
    """A case in which jobs run on the local backend; the log is that of the last run.

    `options` are those of `Script` and of `slotwise.run`, and keys of the workload.
    """
    script, options = _script(options)
    keys = {} if callable(jobs) else {k: options.pop(k) for k in OF_WORKLOADS if k in options}

    def write(log: Path) -> None:
        for _ in range(times):
            given: Any = jobs() if callable(jobs) else "workload.yaml"
            if not callable(jobs):
                Path(given).write_text(json.dumps({"slotwise": 1, "jobs": jobs, **keys}))
            with scripted(script), suppress(slotwise.RunInterrupted):
                slotwise.run(given, scheduler, log=log, keep=False, **options)

    return _settled(write)


def session(
    *at: At, scheduler: str = "fair", slots: Any = 2, times: int = 1, **options: Any
) -> Case:
    """A case in which users use a session; the log is that of the last one."""
    script, options = _script({"at": at, **options})

    def write(log: Path) -> None:
        for _ in range(times):
            with scripted(script) as machine, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of other sessions on this machine.
                opened = slotwise.Session(slots, scheduler, log=log, keep=False, **options)
                with suppress(KeyboardInterrupt):
                    machine.use(opened)
                    opened.close()

    return _settled(write)


def _script(options: Mapping[str, Any]) -> tuple[Script, dict[str, Any]]:
    """The script, and the other options."""
    of_script = {name: value for name, value in options.items() if name in OF_SCRIPTS}
    rest = {name: value for name, value in options.items() if name not in OF_SCRIPTS}
    return Script(**{"others": UNEVEN, **of_script}), rest


def _settled(write: Case) -> Case:
    """A case in a folder of its own, whose log can be replayed; no versions, no account."""

    def case(log: Path) -> None:
        log = log.absolute()
        with TemporaryDirectory() as folder, chdir(folder):
            Path("text.txt").write_text(TEXT)
            write(log)
            place = json.dumps(os.getcwd())[1:-1]
        head, *turns = log.read_text().replace(place, "/folder").splitlines(keepends=True)
        header = json.loads(head) | {"versions": {}}
        header.pop("user", None)  # The account.
        log.write_text(f"{json.dumps(header, separators=(',', ':'))}\n{''.join(turns)}")
        assert slotwise.replay(log).is_identical

    return case


# Cases


def cases() -> dict[str, Case]:
    """The cases by name."""
    return ways() | troubles() | sessions() | sessions_that_change()


def ways() -> dict[str, Case]:
    """Runs under every allocator, assigner and objective."""
    found: dict[str, Case] = {}
    reads = Does(1.0), Does(0.5), Does(1.5), Does(3.0, "copies", 1.25), Does(0.75)
    many = [sleeps(f"job-{n:03}", 1, arrival=n / 256, weight=1.0 + n % 3) for n in range(150)]
    for name in ("fifo", "fair", "flex"):
        two = [words(), words("more", arrival=1.0)]
        found[f"early-{name}"] = run(two, name, slots=KINDS, tasks=reads, **EARLY)
        stated = [words(), of_kinds("stated", arrival=0.5)]
        found[f"split-{name}"] = run(stated, name, slots=KINDS, **SPLIT)
    for name in ALLOCATORS:
        found[f"mixed-{name}"] = run(MIXED, name, slots=4, **NESTED)
        found[f"troubles-{name}"] = run(MIXED, name, slots=4, others=TROUBLES, **NESTED)
    near_hosts = [near("one"), near("two", arrival=0.5), sleeps("any", 3, arrival=0.75)]
    for name in ("fair", "flex"):
        found[f"many-{name}"] = run(many, name, slots=4, others=[Does(1 / 8)])
        for penalty in ("stretch", "makespan"):
            found[f"{penalty}-{name}"] = run(MIXED, name, slots=4, objective=penalty, **NESTED)
        for penalty in ("tardiness", "tardy", "lateness"):
            due = [one for one in MIXED if "deadline" in one]
            found[f"{penalty}-{name}"] = run(due, name, slots=4, objective=penalty, **NESTED)
        for assigner, ways in WAYS.items():
            for which, way in enumerate(ways):
                case = run(near_hosts, name, assigner=assigner, **way, **ON_HOSTS)
                found[f"{assigner}-{which}-{name}"] = case
    for name in QUEUEINGS:
        stated = [of_kinds("one"), of_kinds("two", arrival=0.5, deadline=8.0)]
        found[f"queues-{name}"] = run(stated, name, **ON_MACHINES)
    return found


def troubles() -> dict[str, Case]:
    """Runs of all kinds of jobs, in which something goes wrong or is taken back."""
    old_and_new = [
        sleeps("old", 6, 24.0, pool="low"),
        sleeps("new", 4, arrival=1.0, pool="high"),
    ]
    found = {}
    found["kept"] = run(old_and_new, slots=4, tasks=[KEEPS, TORN] * 2, **TAKES)
    found["killed"] = run(old_and_new, slots=4, tasks=[Does(6.0)] * 4, **TAKES)
    found["kept-flex"] = run(old_and_new, "flex", slots=4, tasks=[KEEPS] * 3, **TAKES)
    takes = Preemption(fair_after=0.5, grace=2.0)
    found["kept-calls"] = run(steps, slots=2, tasks=[KEEPS] * 2, preemption=takes)
    found["calls"] = run(calls, slots=3)
    lost = Does(0.5, "lacks", ("first", (2, 1)))
    found["lost-calls"] = run(calls, slots=2, tasks=[*UNEVEN[:4], lost])
    found["lost-output"] = run([words()], slots=KINDS, tasks=LOSES, **EARLY)
    in_the_way = At(2.25, "write", "out-words/part-r-00001")
    found["no-commit"] = run([words()], slots=3, at=[in_the_way], attempts_max=2)
    bad = [shell("bad", tasks=3), sleeps("good")]
    tasks = [RETURNS[0], *ODD * 3]
    found["given-up"] = run(bad, slots=2, tasks=tasks, others=RETURNS, attempts_max=2)
    two = [shell("a", tasks=4), shell("b", tasks=2, arrival=0.5)]
    found["commands"] = run(two, slots=2, tasks=[*RETURNS, *ODD])
    found["lost-workers"] = run([sleeps("lost", 3)], slots=2, others=ODD[2:])
    idle = [sleeps("one", 2), sleeps("two", 3, arrival=3.0)]
    deaths = At(1.5, "kill", 1), At(3.5, "kill", 0, 2)
    found["idle-deaths"] = run(idle, slots=2, at=deaths)
    found["files"] = run(dataflow_by_files, slots=2)
    gang = [Does(1.0), Does(1.5, "fails", "it broke"), *RETURNS * 2]
    found["gang"] = run(dataflow_gang, slots=4, tasks=gang, others=RETURNS)
    broken = [Does(1.5, "fails", "it broke"), *[Does(1.5, "returns", (9, 90))] * 9]
    found["gang-flex"] = run(dataflow_gang, "flex", slots=4, tasks=broken, others=RETURNS)
    lost_gang = [*RETURNS[:2], Does(0.5, "lacks", ("upper+again+count", (1, 1)))]
    flow_alone = {"slots": 4, "tasks": lost_gang, "others": RETURNS}
    found["lost-gang"] = run(lambda: dataflow_gang()[:1], **flow_alone)
    wide = [sleeps("wide", 2, slots=2, gang=True), sleeps("thin", 7, arrival=0.5)]
    found["wide-gang"] = run(wide, slots=4, tasks=[Does(1.0), Does(2.0, "killed", 9)])
    away = At(1.0, "stop", 2, 3), At(1.5, "stop", 4), At(2.25, "continue", 2)
    back = At(2.5, "continue", 3)
    found["unresponsive"] = run([near("one"), sleeps("two", 5)], at=[*away, back], **ON_HOSTS)
    late = At(1.0, "stop", 0, 1), At(4.0, "continue", 1), At(9.0, "continue", 0)
    long = {"others": [Does(2.0)], **ON_HOSTS}
    found["overdue"] = run([near("one"), sleeps("two", 8, 16.0)], at=late, **long)
    found["stuck"] = run([sleeps("one", 8, 16.0)], at=[At(1.0, "stop", 1)], **long)
    interrupted = [At(2.5, "interrupt")]
    found["interrupted"] = run([words(), words("more")], slots=2, at=interrupted)
    again = [words(), words("more")]
    found["history"] = run(again, "flex", times=3, slots=KINDS, history="history.db")
    return found


CALLS = (
    At(0.25, "submit", number, 1, to="a"),
    At(0.25, "submit", pair, "@a", 2, to="b"),
    At(0.25, "submit", pair, "@b", "@a"),
    At(0.5, "submit", fails, "why", to="failed"),
    At(0.5, "submit", pair, "@failed", 1),
    At(0.75, "submit", number, 2, to="c"),
    At(0.75, "submit", bytes, 1 << 20, to="large"),
    At(1.0, "submit", pair, "@large", 3, to="d"),
    At(1.25, "c.cancel"),
    At(1.25, "submit", number, 4, to="e"),
    At(1.5, "change", "@e", priority="high", weight=3.0, pool="other", deadline=4.0),
    At(1.75, "explain", "@e"),
    At(2.0, "jobs"),
    At(2.0, "d.result"),
)
EXECUTORS = (
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
    At(15.5, "x.submit", number, 9, to="nine"),
    At(15.5, "x.submit", pair, "@nine", 1),
    *[At(15.5, "x.submit", number, 10)] * 4,
    At(15.5, "y.map", pair, [1, 2, 3], [4, 5, 6], buffersize=1, to="ahead"),
    At(15.75, "ahead.__next__"),
    At(15.75, "x.shutdown", wait=False, cancel_futures=True),
    At(16.0, "y.shutdown", wait=False),
)
CHANGES = (
    At(0.0, "run", sleeps("long", 8, 16.0, pool="low"), to="long"),
    At(0.5, "run", sleeps("new", 4, pool="high"), to="new"),
    At(0.75, "run", words(pool="low"), to="words"),
    At(0.75, "command", "true", "out-command", tasks=3, pool="high", to="command"),
    At(1.0, "set_pools", [Pool("low", 4.0), Pool("high", slots_max={"task": 1})]),
    At(1.5, "set_objective", "stretch"),
    At(2.0, "change", "@new", pool="low"),
    At(2.25, "run", sleeps("new", 1), to="again"),
    At(2.5, "set_pools", [Pool("high", jobs_max=1), Pool("low", weight=0.5)]),
    At(3.0, "long.cancel"),
    At(3.25, "run", Calls(Job("calls", (Phase("n", Tasks(3)),)), number)),
    At(3.5, "set_pools", []),
)
BLOCKS = tuple(Block(frozenset(hosts)) for hosts in ("ad", "b", "c", "bd", "e", "a2"))
CHANGES_OF_HOSTS = (
    At(0.0, "run", Job("near", (Phase("read", Tasks(12, 1.0, BLOCKS * 2)),), pool="p")),
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
)
SUBMITTED = *[At(0.0, "submit", number, n) for n in range(5)], At(0.0, "run", words())


def sessions() -> dict[str, Case]:
    """Sessions with calls and jobs, and how they end."""
    found = {}
    for name in ("fifo", "fair", "flex", "las", "uwfq"):
        found[f"calls-{name}"] = session(*CALLS, scheduler=name)
        found[f"executors-{name}"] = session(*EXECUTORS, scheduler=name, slots=3)
    closes = At(1.75, "close", cancels=True)
    found["cancelled"] = session(*SUBMITTED, closes)
    ctrl_c = At(0.5, "close"), At(1.0, "interrupt")
    found["ctrl-c"] = session(*SUBMITTED, *ctrl_c, others=[Does(2.0)])
    deaths = At(0.0, "executor", to="x"), *[At(0.0, "x.submit", number, 1)] * 6
    found["dying-calls"] = session(*deaths, others=[Does(0.25, "killed", 9), *UNEVEN[:2]])
    low = At(0.0, "executor", pool="low", to="x"), *[At(0.0, "x.submit", step, 1)] * 3
    high = At(1.0, "executor", pool="high", to="y"), *[At(1.0, "y.submit", number, 1)] * 3
    takes = {
        "preemption": Preemption(0.5, 1.0, grace=1.0),
        "pools": [Pool("low"), Pool("high", slots_min={"task": 1})],
    }
    found["kept-in-session"] = session(*low, *high, tasks=[KEEPS] * 2, **takes)
    history = {"times": 2, "history": "history.db"}
    found["history-in-session"] = session(SUBMITTED[-1], scheduler="flex", **history)
    return found


def sessions_that_change() -> dict[str, Case]:
    """Sessions whose jobs, pools and hosts change."""
    found = {}
    pools = [Pool("low"), Pool("high")]
    for name in ("fifo", "fair", "flex", "las", "uwfq"):
        found[f"changes-{name}"] = session(*CHANGES, scheduler=name, slots=3, pools=pools)
    hosts = (Host(**one | {"slots": {"task": one["slots"]}}) for one in HOSTS)
    cluster = Cluster(tuple(hosts), grace=1.0)
    for assigner in WAYS:
        of_hosts = {"slots": cluster, "assigner": assigner, "commit_seconds": 1.0}
        found[f"hosts-{assigner}"] = session(*CHANGES_OF_HOSTS, **of_hosts)
    two = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})), grace=0.5)
    with_host = [At(3.25, "remove_host", name, drain=False) for name in "ab"]
    more = At(3.75, "add_host", "c", 1), At(3.75, "submit", number, 1)
    slow = {"slots": two, "commit_seconds": 2.0, "others": [Does(1.0)]}
    found["commit-host-leaves"] = session(SUBMITTED[-1], *with_host, *more, **slow)
    drained = At(2.5, "run", sleeps("nap", 3)), At(3.0, "remove_host", "a"), with_host[0]
    cancelled = At(0.0, "run", words(), to="words"), *drained, At(3.5, "words.cancel")
    found["commit-cancelled"] = session(*cancelled, **slow)
    lost = At(0.5, "stop", 0, 1), At(1.5, "remove_host", "a", drain=False)
    found["lost-host-leaves"] = session(At(0.0, "run", sleeps("nap", 6)), *lost, **slow)
    return found
