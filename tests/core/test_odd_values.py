"""Odd numbers and wrong types in every field: an InputError, or a simulation that ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from slotwise import (
    Cluster,
    Fault,
    Host,
    InputError,
    Job,
    Network,
    Outage,
    Phase,
    Placement,
    Pool,
    Preemption,
    Shuffle,
    Simulation,
    Tasks,
    Workload,
    plan,
    simulate,
)

ODD = (1e308, 5e-324, 10**400, float("nan"), -1, 0, True, "x", None, [], np.float64(2))
"""Numbers too large, too small or none, and values of other types."""

FIELDS: dict[str, dict[str, Any]] = {
    "tasks": {"count": 3, "work": 2.0, "blocks": ()},
    "phase": {
        "name": "m",
        "kind": "task",
        "after": (),
        "slots_min": 0,
        "slots_max": 4,
        "slots": 1,
        "copy": 0.0,
        "slow_start": 1.0,
        "continues": None,
        "grows": False,
        "gang": False,
        "gated": False,
        "resources": {"memory": "1 GiB"},
    },
    "job": {
        "id": "a",
        "arrival": 0.0,
        "pool": "p",
        "weight": 1.0,
        "deadline": 50.0,
        "steps": ((10.0, 1.0),),
        "priority": "normal",
        "penalty": None,
    },
    "host": {
        "name": "h",
        "slots": {"task": 4},
        "rack": "r",
        "speed": 1.0,
        "addresses": (),
        "resources": {"memory": "4 GiB"},
    },
    "cluster": {"heartbeat": 0.0, "grace": 5.0, "kinds": frozenset()},
    "pool": {
        "name": "p",
        "weight": 1.0,
        "slots_min": {},
        "slots_max": {},
        "jobs_max": None,
        "parent": None,
        "policy": "fair",
        "job_weights": "stated",
        "preemption": None,
    },
    "preemption": {"least_after": 5.0, "fair_after": 5.0, "fraction": 0.5, "grace": 1.0},
    "shuffle": {"slow_start": 0.5, "copies_per_slot": 2, "copies_per_job": None},
    "network": {"host": 1e8, "rack": 1e9, "core": 1e9},
    "placement": {"replicas": 1, "policy": "racks", "block_bytes": 100},
    "outage": {"host": "h", "at": 1.0, "seconds": 1.0},
    "fault": {"reason": "no", "after": 0.5},
    "simulation": {
        "seed": 0,
        "noise": 0.1,
        "remote_factor": 1.0,
        "rack_factor": None,
        "save_seconds": None,
        "speeds": {},
        "hide_work": False,
        "repeats": None,
        "loss": None,
        "changes": None,
    },
    "workload": {"replicas": 0, "folder": ".", "objective": None, "changes": ()},
}
"""Every field of what a simulation is made of, with a value that it takes."""


def made(fields: dict[str, dict[str, Any]]) -> tuple[Workload, Simulation]:
    """A workload and a simulation of these fields."""
    given = {group: dict(values) for group, values in fields.items()}
    mine = Phase(tasks=Tasks(**given["tasks"]), **given["phase"])
    after = Phase("r", Tasks(2, 1.0), after=frozenset({"m"}))
    other = Job("z", (Phase("m", Tasks(2, 3.0)),), weight=2.0)
    pool = given["pool"]
    pool["preemption"] = pool["preemption"] or Preemption(**given["preemption"])
    if given["workload"]["objective"] is None:
        del given["workload"]["objective"]
    workload = Workload(
        (Job(phases=(mine, after), **given["job"]), other),
        Cluster((Host(**given["host"]),), **given["cluster"]),
        (Pool(**pool),),
        shuffle=Shuffle(**given["shuffle"]),
        network=Network(**given["network"]),
        placement=None if given["workload"]["replicas"] else Placement(**given["placement"]),
        **given["workload"],
    )
    faults: Iterator[Fault | None] = iter([Fault(**given["fault"])])
    outages = (Outage(**given["outage"]),)
    given["simulation"].setdefault("fault", lambda _: next(faults, None))
    return workload, Simulation(outages=outages, **given["simulation"])


def test_these_values_are_taken() -> None:
    """Otherwise every other value would be refused for a wrong reason."""
    workload, simulation = made(FIELDS)
    assert not simulate(workload, "fair", simulation=simulation).failed


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("group", "field"), [(group, field) for group in FIELDS for field in FIELDS[group]]
)
def test_an_odd_value_is_refused_or_taken(group: str, field: str) -> None:
    """A refusal is one short message; nothing overflows, and no other error arises."""
    messages: list[str] = []
    for value in ODD:
        fields = {**FIELDS, group: {**FIELDS[group], field: value}}
        try:
            workload, simulation = made(fields)
            simulate(workload, "fair", simulation=simulation)
            if group in ("tasks", "phase", "job"):
                plan(workload.jobs, "flex", slots=4, resources={"memory": "4 GiB"})
        except InputError as error:
            messages.append(str(error))
    assert [message for message in messages if "\n" in message or len(message) > 500] == []


@pytest.mark.parametrize(
    ("cls", "field"),
    [
        *((Phase, field) for field in ("slots", "slots_min", "slots_max")),
        *((Pool, field) for field in ("slots_min", "slots_max", "jobs_max")),
    ],
)
def test_a_float_is_no_number_of_slots(cls: Any, field: str) -> None:
    """A whole number is needed, also where the float has the value of one."""
    given = {"name": "m"} | ({"tasks": Tasks(4)} if cls is Phase else {})
    cls(**given, **{field: 4})
    with pytest.raises(InputError, match=rf"{field}.* is 4\.0; give a whole number"):
        cls(**given, **{field: 4.0})


@pytest.mark.parametrize("name", ["memory", "gpu", "license"])
@pytest.mark.parametrize(
    "amount", [*(one for one in ODD if one != 0), 1.2345, "4 Gix", "-1", {}]
)
def test_an_odd_amount_is_refused(name: str, amount: Any) -> None:
    """Of a task, of a host, and of the host of a simulation; the message names the amount."""
    if amount == 2 and not isinstance(amount, bool):
        amount = np.float64("inf")
    odd = {name: amount}
    for use in (
        lambda: Phase("m", Tasks(1, 1.0), resources=odd),
        lambda: Host("h", {"task": 1}, resources=odd),
        lambda: simulate(Job("a", (Phase("m", Tasks(1, 1.0)),)), resources=odd),
    ):
        with pytest.raises(InputError, match=f"resources: {name} is ") as refused:
            use()
        assert len(str(refused.value)) < 300
