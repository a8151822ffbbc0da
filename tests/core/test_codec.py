"""Everything that a log holds comes back from JSON as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core import codec
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import (
    Adjust,
    Defer,
    GiveUp,
    Launch,
    Locality,
    Preempt,
    Reallocate,
    Release,
)
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import PRIORITIES, Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, Preemption
from tiers import examples

# Reasons may be anything that programs and file systems come up with, lone surrogates included.
reasons = st.text(st.characters(), min_size=1, max_size=8)
names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=8)
seconds = st.floats(0, 1e10, allow_nan=False)
increasing = st.lists(seconds, max_size=3, unique=True).map(sorted)
numbers = st.integers(0, 2**40)
phase_ids = st.builds(PhaseId, names, names)
shares = st.dictionaries(names, st.integers(0, 99), max_size=3)
blocks = st.builds(Block, st.frozensets(names, max_size=3), numbers)


@st.composite
def tasks(draw: st.DrawFn) -> Tasks:
    """Tasks of no, equal or different work, with or without blocks."""
    count = draw(st.integers(1, 4))
    work = draw(st.none() | seconds | st.tuples(*[seconds] * count))
    return Tasks(count, work, draw(st.just(()) | st.tuples(*[blocks] * count)))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs with everything that jobs may have."""
    phases: list[Phase] = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        before = [phase.name for phase in phases]
        least = draw(st.integers(0, 5))
        phase = Phase(
            name,
            draw(tasks()),
            kind=draw(names),
            after=draw(st.frozensets(st.sampled_from(before))) if before else frozenset(),
            slots_min=least,
            slots_max=draw(st.none() | st.integers(max(1, least), 9)),
        )
        if phase.after:
            phase = replace(phase, slow_start=draw(st.floats(0, 1)), copy=draw(seconds))
        elif before and draw(st.booleans()):
            other = draw(st.sampled_from(phases))
            phase = replace(phase, tasks=Tasks(other.tasks.count), continues=other.name)
        phases.append(phase)
    return Job(
        draw(names),
        tuple(phases),
        arrival=draw(seconds),
        pool=draw(names),
        weight=draw(st.floats(1e-6, 1e6)),
        deadline=draw(st.none() | seconds),
        steps=tuple(zip(draw(increasing), draw(increasing), strict=False)),
        penalty=draw(st.none() | names),
        priority=draw(st.sampled_from(sorted(PRIORITIES))),
    )


peaks = st.none() | st.integers(1, 1 << 50)
attempts = {"phase": phase_ids, "task": numbers, "attempt": numbers}
entries = st.one_of(
    st.builds(JobArrived, at=seconds, job=jobs()),
    st.builds(TaskFinished, at=seconds, seconds=seconds, peak=peaks, **attempts),
    st.builds(
        TaskFailed, at=seconds, reason=reasons, lost=st.booleans(), peak=peaks, **attempts
    ),
    st.builds(TaskKilled, at=seconds, kept=seconds, **attempts),
    st.builds(
        Reallocate,
        slots=st.dictionaries(phase_ids, st.integers(0, 99) | st.floats(0, 99), max_size=4),
        until=seconds,
        next=st.none() | st.lists(phase_ids, max_size=3).map(tuple),
    ),
    st.builds(
        Adjust,
        slots=st.dictionaries(phase_ids, st.integers(0, 99) | st.floats(0, 99), max_size=4),
        until=seconds,
        earliest=st.just(-inf) | seconds,
    ),
    st.builds(
        Launch,
        host=names,
        locality=st.sampled_from(Locality),
        devices=st.just(()) | st.lists(numbers, max_size=3).map(tuple),
        **attempts,
    ),
    st.builds(Defer, phase=phase_ids, since=seconds, until=seconds),
    st.builds(
        Preempt, host=names, until=st.none() | seconds, pool=st.none() | names, **attempts
    ),
    st.builds(Release, pool=names, kind=names, slot_kind=names, host=names, slots=numbers),
    st.builds(GiveUp, job=names, reason=reasons),
)


def through_json(plain: Any) -> Any:
    """What is read where this was written, in one line."""
    text = json.dumps(plain, allow_nan=False)
    assert "\n" not in text
    return json.loads(text)


@settings(max_examples=examples(20, slow=1000))
@given(entries)
def test_every_entry_comes_back(entry: Any) -> None:
    """Events and decisions, of the same type, with the same floats."""
    again = codec.decode(through_json(codec.encode(entry)))
    assert type(again) is type(entry)
    assert again == entry
    assert json.loads(codec.to_json(entry)) == through_json(codec.encode(entry))


@settings(max_examples=examples(20, slow=1000))
@given(jobs())
def test_every_job_comes_back(job: Job) -> None:
    """Phases, tasks, blocks, steps."""
    assert codec.decode_job(through_json(codec.encode_job(job))) == job


@given(
    st.builds(
        Pool,
        names,
        st.floats(0.01, 99),
        st.dictionaries(names, st.integers(0, 5), max_size=3),
        st.dictionaries(names, st.integers(5, 9), max_size=3),
        st.sampled_from(["fair", "fifo"]),
        st.none() | names,
        st.none() | st.integers(1, 99),
        st.sampled_from(["stated", "size"]),
        st.none()
        | st.builds(
            Preemption,
            st.none() | st.just(inf) | seconds,
            st.none() | st.just(inf) | seconds,
            st.none() | st.floats(0.01, 1),
            st.none() | seconds,
        ),
    )
)
def test_every_pool_comes_back(pool: Pool) -> None:
    """Weights, shares, policies, parents, and when it takes slots back, never included."""
    assert codec.decode_pool(through_json(codec.encode_pool(pool))) == pool


@settings(max_examples=examples(20, slow=1000))
@given(st.lists(names, min_size=1, max_size=4, unique=True), shares, st.floats(0.1, 9), seconds)
def test_every_cluster_comes_back(
    hosts: list[str], slots: dict[str, int], speed: float, heartbeat: float
) -> None:
    """Hosts with racks, slots of kinds and speeds, and how often they report."""
    cluster = Cluster(
        tuple(Host(name, {**slots, "task": 1}, name[::-1], speed) for name in hosts), heartbeat
    )
    plain = through_json(codec.encode_cluster(cluster))
    assert codec.decode_cluster(plain, heartbeat) == cluster


def test_types_are_identified_by_name() -> None:
    """Entries with equal fields are different things."""
    killed = TaskKilled(1.0, PhaseId("j", "p"), 0, 1)
    assert codec.encode(killed)["is"] == "TaskKilled"
    with pytest.raises(KeyError):
        codec.decode({"is": "TaskRaised", "at": 1.0})


def test_entries_of_older_logs_have_defaults() -> None:
    """Logs were written before there were priorities, nested pools, grace and slow start."""
    phase = PhaseId("j", "map")
    attempt = {"phase": ["j", "map"], "task": 0, "attempt": 1}
    killed = codec.decode({"is": "TaskKilled", "at": 2.0, **attempt})
    assert killed == TaskKilled(2.0, phase, 0, 1, kept=0.0)
    stopped = codec.decode({"is": "Preempt", "host": "h", **attempt})
    assert stopped == Preempt(phase, 0, 1, "h", until=None, pool=None)
    job = Job("j", (Phase("map", Tasks(1, 2.0)),))
    plain = codec.encode_job(job)
    del plain["priority"]
    for key in ("slow_start", "copy", "continues"):
        del plain["phases"][0][key]
    assert codec.decode_job(plain) == job
    pool = {"name": "p", "weight": 2.0, "slots_min": {}, "slots_max": {}, "policy": "fifo"}
    assert codec.decode_pool(pool) == Pool("p", 2.0, policy="fifo")
