"""Golden plans: of each allocator for each objective, and of whole tasks by each planner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from golden.golden import Case
from golden.runs import COMPACT
from slotwise import (
    Cluster,
    Host,
    InputError,
    Job,
    Objective,
    Phase,
    Pool,
    Tasks,
    Workload,
    plan,
    plan_tasks,
)
from slotwise.core.objective import PENALTIES
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.scheduler import ALLOCATORS

STEPS = 30
"""Steps of search: enough to change plans."""

OBJECTIVES = [
    Objective(penalty, aggregate)
    for penalty in PENALTIES
    for aggregate in (("max",) if penalty == "makespan" else ("sum", "max"))
]


def cases() -> dict[str, Case]:
    """A case for each workload and allocator or planner."""
    return dict([*_malleable(), *_whole_tasks()])


def _malleable() -> Iterator[tuple[str, Case]]:
    workloads = {
        "jobs": jobs(Random(1), 7),
        "min-shares": jobs(Random(3), 6, shares=True),
        "flows": flows(Random(4), 4),
        "pools": pools(Random(5)),
        "kinds": kinds(Random(6)),
    }
    for name in ALLOCATORS:
        for title, workload in workloads.items():
            # The bound takes longest, and is the same under all allocators.
            if (name, title) in (("flex", "jobs"), ("flowflex", "flows")):
                few = OBJECTIVES
            else:
                few = OBJECTIVES[::5] if "flex" in name else OBJECTIVES[1:2]
            asked = [partial(plan, workload, name, objective=one) for one in few]
            if title in ("jobs", "flows") or name in ("fifo", "fair", "flex", "flowflex"):
                yield f"plan-{title}-{name}", partial(_write, asked)
    many = [Job(f"j{n}", (Phase("map", Tasks(1 + n % 3, 1.0 + n % 7)),)) for n in range(520)]
    sliced = partial(plan, Workload(tuple(many), Cluster.of_slots(40)), "fair")
    yield "plan-many-fair", partial(_write, [sliced])
    yield "plan-default-budget-flex", lambda log: _save(log, [plan(jobs(Random(8), 5))])


def _whole_tasks() -> Iterator[tuple[str, Case]]:
    for name in PLANNERS:
        for seed in range(4):
            asked = [partial(plan_tasks, machines(Random(seed)), name)]
            yield f"plan-tasks-{seed}-{name}", partial(_write, asked)


def _write(asked: Iterable[Callable[..., Any]], log: Path) -> None:
    """Write each plan, or that it is refused."""
    _save(log, (_planned(one) for one in asked))


def _planned(one: Callable[..., Any]) -> Any:
    try:
        return one(budget_steps=STEPS)
    except InputError:
        return None


def _save(log: Path, plans: Iterable[Any]) -> None:
    """Write plans without the seconds that they took."""
    with log.open("w") as file:
        for found in plans:
            if found is None:
                file.write("refused\n")
                continue
            plain = found.to_plain()
            del plain["seconds"]
            plain["summary"] = found.summary()
            file.write(json.dumps(plain, separators=COMPACT) + "\n")


def jobs(rng: Random, count: int, *, shares: bool = False) -> Workload:
    """Jobs of one phase, with deadlines and steps."""
    found = [
        _job(rng, number, (_phase(rng, "map", 2 if shares and number % 2 else 0),))
        for number in range(count)
    ]
    return Workload(tuple(found), Cluster.of_slots(6))


def _job(rng: Random, number: int, phases: tuple[Phase, ...], pool: str = "default") -> Job:
    due = rng.randint(3, 40)
    return Job(
        f"j{number}",
        phases,
        pool=pool,
        weight=rng.choice([1.0, 0.5, 3.0]),
        deadline=float(due),
        steps=((due / 2, 1.0), (float(due), rng.choice([2.0, 5.0]))),
        penalty=rng.choice([None, None, None, None, "tardy", "response"]),
    )


def _phase(rng: Random, name: str, least: int = 0, **more: Any) -> Phase:
    tasks = Tasks(rng.randint(1, 9), rng.choice([1.0, 2.0, 3.5]))
    most = rng.choice([None, None, 2, 4])
    return Phase(name, tasks, slots_min=least, slots_max=most, **more)


def flows(rng: Random, count: int) -> Workload:
    """Jobs that are DAGs of up to five phases."""
    found = []
    for number in range(count):
        phases: list[Phase] = []
        for place in range(rng.randint(2, 5)):
            after = frozenset(one.name for one in phases if rng.random() < 0.5)
            phases.append(_phase(rng, f"p{place}", after=after))
        found.append(_job(rng, number, tuple(phases)))
    return Workload(tuple(found), Cluster.of_slots(5))


def pools(rng: Random) -> Workload:
    """Jobs of one or two phases in pools with shares."""
    tree = (
        Pool("a", weight=2.0, slots_min=2),
        Pool("a1", parent="a", policy="fifo"),
        Pool("a2", parent="a", weight=3.0, slots_min=1),
        Pool("b", slots_max=3, job_weights="size"),
    )
    found = []
    for number in range(6):
        phases = [_phase(rng, "map")]
        if number % 2:
            phases.append(_phase(rng, "reduce", after=frozenset({"map"})))
        found.append(_job(rng, number, tuple(phases), rng.choice(["a1", "a2", "b"])))
    return Workload(tuple(found), Cluster.of_slots(6), tree)


def kinds(rng: Random) -> Workload:
    """Jobs of maps and reduces on slots of their kinds."""
    hosts = tuple(Host(f"h{number}", {"map": 2, "reduce": 1}) for number in range(3))
    found = []
    for number in range(5):
        maps = _phase(rng, "map", kind="map")
        reduces = _phase(rng, "reduce", kind="reduce", after=frozenset({"map"}))
        found.append(_job(rng, number, (maps, reduces)))
    return Workload(tuple(found), Cluster(hosts))


def machines(rng: Random) -> Workload:
    """Jobs of maps and reduces, and DAGs, on hosts of different speeds."""
    hosts = tuple(
        Host(f"h{number}", {"task": rng.randint(1, 2)}, speed=rng.choice([1.0, 2.0, 0.5]))
        for number in range(rng.randint(2, 5))
    )
    found = []
    for number in range(rng.randint(2, 5)):
        works = [
            tuple(rng.randint(1, 9) / 2 for _ in range(rng.randint(1, 5))) for _ in range(3)
        ]
        first = Phase("map", Tasks(len(works[0]), works[0]))
        second = Phase("reduce", Tasks(len(works[1]), works[1]), after="map")
        third = Phase(
            "last", Tasks(len(works[2]), works[2]), after=rng.choice(["map", "reduce"])
        )
        phases = (first, second, third)[: rng.randint(1, 3)]
        found.append(Job(f"j{number}", phases, rng.choice([0.0, 2.0]), weight=1.0 + number))
    return Workload(tuple(found), Cluster(hosts))
