"""Golden logs of gates, by scripted schedulers of Dask.

A script has

options    of the gate, as in its file
workers    of Dask, by address: "nthreads", "resources"
addresses  of clients, by their ids
outcomes   for each prefix what becomes of its tasks in the order in which workers begin them,
           again and again: seconds (None: it never ends), and "memory", "retry" or an error
events     time, what, details: a "graph" of a client with its keys and what they depend on,
           "release" of keys, and what happens to workers
until      when it ends; "opens": whether the gate opens because of an error

`gate_plugin.py` joins it to the code that it drives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from golden.fake_scheduler import Script
from golden.gate_plugin import write_answers, write_log
from golden.golden import Case


def client(name: str) -> str:
    """The id that Dask makes of the name of a client."""
    return f"Client-{name}-0a1b2c3d-1111-2222-3333-0a1b2c3d4e5f"


def flat(name: str, count: int, **more: Any) -> dict[str, Any]:
    """A graph of tasks that depend on nothing."""
    return {"keys": {f"{name}-{n}": {**more} for n in range(count)}}


def tree(name: str, leaves: int, **more: Any) -> dict[str, Any]:
    """A graph that reads, and adds two results at a time; its last key is wanted."""
    level = [f"{name}read-{n}" for n in range(leaves)]
    keys: dict[str, Any] = {key: [] for key in level}
    while len(level) > 1:
        pairs = [level[n : n + 2] for n in range(0, len(level), 2)]
        level = [f"{name}add-{len(keys) + n}" for n in range(len(pairs))]
        keys.update(zip(level, pairs, strict=True))
    return {"keys": keys, "wanted": level, **more}


OUTCOMES = {
    "aread": [[0.3, "memory"], [0.5, "memory"]],
    "aadd": [[0.7, "memory"]],
    "bread": [[0.2, "memory"], [0.9, "memory"], [0.4, "memory"]],
    "badd": [[0.6, "memory"]],
    "c": [[1.1, "memory"], [0.2, "memory"]],
    "d": [[0.05, "memory"]],
    "short": [[0.004, "memory"], [0.02, "memory"]],
    "fails": [[0.4, "memory"], [0.3, "retry"], [0.2, "ValueError: it is wrong"]],
    "nested": [[6.0, "memory"]],
    "endless": [[None, "memory"]],
}
WORKERS: dict[str, dict[str, Any]] = {
    "w0": {"nthreads": 2},
    "w1": {"nthreads": 1, "resources": {"GPU": 1}},
    "w2": {"nthreads": 2, "resources": {"GPU": 2, "disk": 1}},
}
POOLS = [
    {"name": "production", "slots_min": {"task": 2}, "weight": 2.0, "policy": "fifo"},
    {"name": "research", "slots_max": {"task": 3}, "job_weights": "size"},
    {"name": "ann", "parent": "research", "jobs_max": 1},
    {"name": "bob", "parent": "research", "weight": 3.0, "slots_min": 1},
    {"name": "cas", "slots_max": 2, "jobs_max": 2},
]
RULES = [
    {"pool": "production", "client": "nightly-*"},
    {"pool": "production", "annotation": {"pool": "cas", "weight": 7}},
    {"pool": "cas", "address": "tcp://10.1.*"},
]
ADDRESSES = {client("dan"): "tcp://10.1.0.7:5", client("eve"): "tcp://10.2.0.7:5"}
MIX = [
    [0.1, "graph", client("ann"), tree("a", 8)],
    [0.2, "graph", client("bob"), tree("b", 6, annotation={"weight": 2.0, "deadline": 4.0})],
    [0.2, "graph", client("ann"), flat("c", 7) | {"priority": 5}],
    [0.6, "graph", client("nightly-7"), flat("d", 20)],
    [0.7, "graph", client("dan"), flat("e", 3) | {"priority": -1}],
    [0.8, "graph", client("eve"), flat("f", 3) | {"annotation": {"pool": "cas", "weight": 7}}],
    [0.9, "graph", client("eve"), flat("g", 2) | {"annotation": {"priority": "very_high"}}],
    [1.0, "graph", client("eve"), flat("h", 2) | {"annotation": {"pool": "nowhere"}}],
    [1.1, "graph", client("eve"), flat("i", 2) | {"annotation": {"weight": -1, "colour": 2}}],
    [1.2, "graph", "fire-and-forget", {"keys": {("j", 0): [], ("j", 1): [("j", 0)]}}],
    [2.0, "graph", client("bob"), tree("b2", 4) | {"priority": 1}],
    [6.0, "graph", client("cas"), flat("k", 5)],
]


def mix(scheduler: str, penalty: Any = "response", events: Any = (), **more: Any) -> Script:
    """Graphs of many clients, in pools by rules, annotations and names."""
    return {
        "options": {
            "scheduler": scheduler,
            "objective": penalty,
            "pools": POOLS,
            "rules": RULES,
            **more,
        },
        "workers": WORKERS,
        "addresses": ADDRESSES,
        "outcomes": OUTCOMES,
        "events": sorted([*MIX, *events], key=lambda event: float(event[0])),
    }


def fair(*events: list[Any], **more: Any) -> Script:
    """What happens behind a fair gate without pools."""
    return {
        "options": {"scheduler": "fair"},
        "workers": WORKERS,
        "outcomes": OUTCOMES,
        "events": list(events),
        **more,
    }


GRAPHS: list[list[Any]] = [
    [0.1, "graph", client("ann"), tree("a", 8)],
    [0.4, "graph", client("bob"), tree("b", 6)],
    [0.9, "graph", client("cas"), flat("c", 9)],
]
CHANGES: list[list[Any]] = [
    [0.5, "add", "w3"],
    [1.0, "lose", "w0"],
    [1.3, "pause", "w2"],
    [2.1, "resume", "w2"],
    [2.4, "retire", "w1"],
    [2.9, "add", "w0"],
    [3.5, "pause", "w0"],
    [3.6, "pause", "w2"],
    [3.7, "pause", "w3"],
    [4.4, "resume", "w3"],
    [4.5, "lose", "w2"],
    [4.5, "release", client("ann"), ["c-5", "c-6"]],
    [8.0, "resume", "w0"],
]
ONLY = {"worker_restrictions": {"w1"}}
GPU = {"resource_restrictions": {"GPU": 1}}
BOTH = {"resource_restrictions": {"GPU": 2, "disk": 1}}
BOUND: list[list[Any]] = [
    [0.1, "graph", client("ann"), flat("c", 5, **ONLY)],
    [0.2, "graph", client("bob"), flat("bread", 6, **GPU)],
    [0.3, "graph", client("cas"), flat("aread", 8)],
    [0.4, "graph", client("dan"), flat("d", 4, **BOTH)],
    [0.5, "graph", client("eve"), flat("e", 3, host_restrictions={"w0", "w2"})],
    [0.6, "graph", client("eve"), flat("f", 3, worker_restrictions={"w9"})],
    [
        0.7,
        "graph",
        client("eve"),
        flat("g", 3, worker_restrictions={"w9"}, loose_restrictions=True),
    ],
]
NESTED = [
    [0.1, "graph", client("ann"), flat("nested", 4)],
    [0.3, "graph", client("bob"), flat("c", 6)],
    [0.6, "graph", client("ann"), flat("aread", 5) | {"submitting_task": "nested-0"}],
    [0.8, "graph", client("ann"), flat("bread", 5) | {"submitting_task": "nested-1"}],
    [0.85, "secede", "nested-1"],
    [1.5, "secede", "nested-2"],
    [1.6, "secede", "nested-2"],
    [1.7, "graph", client("ann"), flat("d", 3) | {"submitting_task": "nested-2"}],
    [2.0, "graph", client("ann"), flat("e", 3) | {"submitting_task": "nothing"}],
]
ASKED = [[at / 4, what] for at in range(1, 25) for what in ("status", "target")]

SCRIPTS: dict[str, Script] = {
    "plain": fair(*GRAPHS),
    **{name: mix(name) for name in ("fifo", "fair", "flex", "las", "uwfq", "flowflex")},
    **{
        f"flex-{penalty}": mix("flex", penalty)
        for penalty in ("tardiness", "tardy", "stretch", "slowdown", "makespan")
    },
    "flex-max-lateness": mix("flex", {"penalty": "lateness", "aggregate": "max"}),
    "flowflex-max": mix("flowflex", {"penalty": "response", "aggregate": "max"}),
    "ahead-of-threads": mix("fair", ahead=2),
    "not-ahead": mix("fair", ahead=0),
    "short": fair(
        [0.1, "graph", client("ann"), flat("short", 60)],
        [0.15, "graph", client("bob"), flat("short", 5) | {"keys": {"short-b": []}}],
        [0.2, "graph", client("cas"), flat("d", 30)],
    ),
    "workers-change": mix("fair", events=CHANGES),
    "workers-change-flex": mix("flex", events=CHANGES),
    "all-workers-leave": fair(
        *GRAPHS, *[[1.2, "lose", name] for name in WORKERS], [5.0, "add", "w9"]
    ),
    "restart": fair(*GRAPHS, [1.7, "restart"], [2.0, "graph", client("ann"), tree("a", 5)]),
    "failures": fair(
        [0.1, "graph", client("ann"), flat("fails", 7)],
        [0.2, "graph", client("bob"), tree("b", 4)],
        [0.4, "graph", client("cas"), {"keys": {f"c-{n}": [f"fails-{n}"] for n in range(7)}}],
        [0.5, "graph", client("dan"), {"keys": {f"d-{n}": [f"c-{n}"] for n in range(7)}}],
        [6.0, "release", client("ann"), [f"fails-{n}" for n in range(7)]],
    ),
    "releases": fair(
        *GRAPHS,
        [0.95, "release", client("cas"), ["c-8", "c-0", "c-7"]],
        [1.4, "release", client("ann"), [f"aadd-{n}" for n in range(8, 16)]],
        [1.4, "lose", "w2"],
        [1.5, "graph", client("ann"), flat("endless", 3)],
        [2.5, "release", client("ann"), ["endless-0", "endless-1", "endless-2"]],
        [3.0, "release", client("cas"), [f"c-{n}" for n in range(9)]],
        [3.1, "graph", client("cas"), flat("c", 4)],
    ),
    "shared-keys": fair(
        [0.1, "graph", client("ann"), tree("a", 8)],
        [0.6, "graph", client("bob"), {"keys": {"c-0": ["aread-1"], "c-1": ["aread-7"]}}],
        [0.7, "graph", client("cas"), {"keys": {"aread-3": [], "c-2": ["c-0"]}}],
        [1.0, "release", client("ann"), [f"aadd-{n}" for n in range(8, 16)]],
    ),
    "results-lost": fair(
        [0.1, "graph", client("ann"), tree("a", 8)],
        [0.2, "graph", client("bob"), flat("bread", 6)],
        [1.6, "lose", "w2"],
        [4.5, "lose", "w0"],
        [4.9, "add", "w2"],
    ),
    "restrictions": fair(*BOUND, [3.0, "lose", "w1"], [4.0, "add", "w1"], [4.5, "add", "w9"]),
    "resources-change": fair(
        *BOUND, [1.0, "resources", "w0", {"GPU": 1}], [2.0, "resources", "w2", {}]
    ),
    "restricted-in-pools": {
        **mix("fair"),
        "events": [
            [0.1, "graph", client("ann"), flat("c", 5, **ONLY)],
            [0.2, "graph", client("ann"), flat("d", 5, **GPU)],
            [0.3, "graph", client("cas"), flat("bread", 6, **GPU)],
            [0.4, "graph", client("cas"), flat("e", 4, **ONLY)],
            [0.5, "graph", client("cas"), flat("f", 4)],
            [0.6, "graph", client("bob"), tree("a", 6)],
        ],
    },
    "actors-and-leases": fair(
        [0.1, "graph", client("ann"), flat("c", 3, actor=True)],
        [0.2, "graph", client("ann"), {"keys": {("slotwise-lease", "x", 0): ONLY}}],
        [0.3, "graph", client("bob"), tree("b", 6)],
        [1.5, "release", client("ann"), ["c-0", "c-1", ("slotwise-lease", "x", 0)]],
    ),
    "nested": fair(*NESTED),
    # Computations that await admission have tasks for which others wait.
    "nested-in-pools": {**mix("fair"), "events": NESTED},
    "needed-outside": {
        **mix("fair"),
        "events": [
            [0.1, "graph", client("ann"), flat("endless", 1)],
            [0.2, "graph", client("ann"), flat("aread", 4)],
            [0.3, "graph", client("bob"), {"keys": {f"c-{n}": [f"aread-{n}"] for n in (0, 2)}}],
            [5.0, "release", client("ann"), ["endless-0"]],
        ],
    },
    # Names of pools that are not configured are forgotten.
    "many-pools": fair(
        *[
            [n / 20, "graph", client("x"), flat(f"p{n}", 2) | {"annotation": {"pool": f"p{n}"}}]
            for n in range(104)
        ],
        until=60.0,
    ),
    "replaced": fair(
        *GRAPHS,
        [1.3, "install", {"scheduler": "fifo", "pools": POOLS}],
        [1.5, "graph", client("bob"), flat("bread2", 9)],
        [1.6, "graph", client("ann"), tree("a2", 6)],
    ),
    "removed": fair(*GRAPHS, [1.3, "unplug"]),
    "fails": fair(*GRAPHS, [1.3, "break"], opens=True),
    "ends-early": fair(*GRAPHS, until=1.8),
}

ANSWERS: dict[str, Script] = {
    "fair": mix("fair", events=ASKED),
    "flex": mix("flex", "tardiness", events=[*CHANGES, *ASKED]),
    "restricted": fair(*BOUND, *ASKED),
    "fails": fair(*GRAPHS, *ASKED, [1.3, "break"], opens=True),
    "all-leave": fair(*GRAPHS, *ASKED, *[[1.2, "lose", name] for name in WORKERS]),
}


def cases() -> dict[str, Case]:
    """The cases by name."""
    logs: dict[str, Case] = {name: partial(write_log, one) for name, one in SCRIPTS.items()}
    return logs | {f"asked-{n}": partial(write_answers, one) for n, one in ANSWERS.items()}
