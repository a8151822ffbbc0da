"""The JSON of jobs, pools and workers: what the store has, and what the session does now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from slotwise.core.errors import InputError
from slotwise.core.resources import in_units
from slotwise.insight.explanation import explanation_lines
from slotwise.insight.reasons import Reason, WhyWaiting
from slotwise.service.engine.engine import OVER, Engine, plain_result
from slotwise.service.engine.planning import promised_at
from slotwise.service.settings import HELD
from slotwise.service.store.records import OPEN, StoredJob

CHANGES_MAX = 10
"""The most changes of the configuration that the state of the server lists."""

TASKS_MAX = 1_000
"""The most tasks in the JSON of a job."""

LIVE = frozenset({"queued", "waiting", "held", "running"})
"""The states of jobs that are not over."""

IDLE = "all its calls are done; more may come"
"""Why a job of calls waits that has none."""

EXPLAINED_MIN = 10
"""Of how many jobs a list always says why they wait."""

EXPLAIN_SECONDS = 0.02
"""For how long a list says so of more jobs. Meanwhile, nothing else is decided."""


class Live:
    """The numbers of the tasks of a job in the session at an instant."""

    __slots__ = ("done", "has_arrived", "reason", "running", "slots", "tasks")

    def __init__(self) -> None:
        self.tasks = self.done = self.running = self.slots = 0
        self.reason = ""
        self.has_arrived = False


def jobs_json(engine: Engine, records: Sequence[StoredJob]) -> list[dict[str, Any]]:
    """The JSON of jobs, all of one instant."""
    left = [one.id for one in records if one.state == OPEN]
    live = _live(engine, left)
    ended = engine.store.tasks_ended([one.number for one in records if one.state in OVER])
    rows = [_job(engine, one, live.get(one.id), ended.get(one.number)) for one in records]
    etas = engine.core.etas(left)
    for row in rows:
        eta = None if row["held"] else etas.get(row["id"])
        row["eta"] = None if eta is None else eta.to_plain()
        if eta is not None and row["begun"] is not None:  # Since the forecast.
            row["eta"]["start"] = None
    return rows


def eta_json(engine: Engine, job: str) -> dict[str, Any]:
    """When a job starts and ends. It names nothing that only its user may see."""
    (row,) = jobs_json(engine, [engine.found(job)])
    return {**{key: row[key] for key in ("id", "state", "eta")}, "now": time.time()}


def job_json(engine: Engine, record: StoredJob) -> dict[str, Any]:
    """The JSON of a job with its tasks."""
    (plain,) = jobs_json(engine, [record])
    tasks = [
        {
            "phase": one.phase,
            "task": one.task,
            "state": one.state,
            "attempt": one.attempt,
            "code": one.code,
            "begun": one.begun,
            "ended": one.ended,
            "reason": one.reason,
        }
        for one in engine.store.tasks(record.id)
    ]
    running = engine.core.ask(lambda: _running(engine, record.id))
    first = [one for one in tasks if one["state"] in ("failed", "lost")]
    rest = [one for one in tasks if one["state"] not in ("failed", "lost")]
    listed = [*running, *first, *rest][:TASKS_MAX]
    return {**plain, "promise": promised_at(record), "tasks_listed": listed}


def _running(engine: Engine, job: str) -> list[dict[str, Any]]:
    return [
        {
            "phase": launch.phase.phase,
            "task": launch.task,
            "state": "running",
            "attempt": launch.attempt,
            "begun": engine.launched.get((launch.phase, launch.task)),
            "host": launch.host,
        }
        for phase in engine.core.state.phases_of(job)
        for launch, *_ in phase.launches.values()
    ]


def _live(engine: Engine, jobs: Sequence[str]) -> Mapping[str, Live]:
    """What the session knows of jobs, all of one instant."""
    if not jobs:
        return {}
    state, views = engine.core.state, engine.core.views

    def read() -> dict[str, Live]:
        found, explained = dict[str, Live](), 0
        until = time.perf_counter() + EXPLAIN_SECONDS
        for job in jobs:
            found[job] = one = Live()
            phases = state.phases_of(job)
            one.has_arrived = bool(phases)
            for phase in phases:
                one.tasks += phase.phase.tasks.count
                one.done += phase.done + phase.dropped
                one.running += len(phase.launches)
                one.slots += len(phase.launches) * phase.phase.slots
            if phases and (explained < EXPLAINED_MIN or time.perf_counter() < until):
                explained += 1
                row = views.job(job, state.now)
                one.reason, one.slots = row.reason, row.slots
        return found

    return engine.core.ask(read)


def _job(
    engine: Engine, record: StoredJob, live: Live | None, ended: tuple[int, int] | None
) -> dict[str, Any]:
    """The JSON of a job; `ended` has the numbers of its tasks that are done, and that failed.

    Only those of commands are stored. Of others all are done if the job is.
    """
    done, failed = ended or (0, 0)
    plain: dict[str, Any] = {
        "id": record.id,
        "number": record.number,
        "kind": record.kind,
        "name": record.name,
        "user": record.user,
        "pool": record.pool,
        "priority": record.priority,
        "weight": record.weight,
        "state": record.state,
        "reason": record.reason,
        "submitted": record.submitted,
        "begun": record.begun,
        "ended": record.ended,
        "deadline": record.deadline,
        "tasks": record.tasks,
        "tasks_done": record.tasks if record.state == "done" else done,
        "tasks_running": 0,
        "tasks_failed": failed,
        "slots": 0,
        "output": None,
        "after": list(record.after),
        "code": record.code,
        "restarts": record.restarts,
        "held": record.held,
        "stream": record.stream,
    }
    if record.state in OVER:
        plain["output"], _ = plain_result(record.result)
        return plain
    plain["state"] = "held" if record.held else "queued"
    if live is None:
        return plain
    plain["tasks"] = max(live.tasks, record.tasks)
    plain["tasks_done"], plain["tasks_running"] = live.done, live.running
    stream = engine.streams.of_job(record.id)
    if stream is not None:  # The session has only calls of this start of the server.
        plain["tasks"] = max(plain["tasks"], len(stream.numbers))
        plain["tasks_done"] = max(0, len(stream.numbers) - len(stream.futures))
    plain["slots"] = live.slots
    plain["reason"] = live.reason
    if record.held:
        plain["reason"] = _held(record)
    if live.running:
        plain["state"] = "running"
    elif not record.held:
        before = [job for job in record.after if engine.is_open(job)]
        if before:
            plain["state"], plain["reason"] = "waiting", f"for {', '.join(before)}"
        elif stream is not None and not stream.futures:
            plain["state"], plain["reason"] = "waiting", IDLE
        elif stream is not None and not live.has_arrived:
            plain["state"], plain["reason"] = "waiting", "for other calls"
    return plain


def _held(record: StoredJob) -> str:
    return f"`slotwise release {record.id}` lets its tasks begin"


def running(engine: Engine) -> list[str]:
    """The jobs of which a task runs."""

    def read() -> list[str]:
        jobs = engine.core.state.jobs_left()
        return [phases[0].job.id for phases in jobs if any(one.launches for one in phases)]

    return engine.core.ask(read)


def pools_json(engine: Engine) -> list[dict[str, Any]]:
    """The pools with their shares and what they hold; not the closed one of held jobs."""

    def read() -> list[dict[str, Any]]:
        state = engine.core.state
        held, jobs, running = (dict.fromkeys(state.pools, 0) for _ in range(3))
        for phases in state.jobs_left():
            job = phases[0].job
            count = sum(len(phase.launches) * phase.phase.slots for phase in phases)
            for pool in state.pools.path(job.pool):
                held[pool.name] = held.get(pool.name, 0) + count
                running[pool.name] = running.get(pool.name, 0) + bool(count)
                jobs[pool.name] = jobs.get(pool.name, 0) + 1
        for name in state.not_admitted:
            for pool in state.pools.path(state.phases_of(name)[0].job.pool):
                jobs[pool.name] = jobs.get(pool.name, 0) + 1
        shares = (share for kind in state.cluster.capacity for share in state.shares(kind))
        limits = (limit for share in shares for limit in share.own_limits)
        used = {(limit.pool, limit.name): limit.held for limit in limits}
        return [
            {
                "name": name,
                "weight": pool.weight,
                "parent": pool.parent,
                "slots_min": dict(pool.slots_min),
                "slots_max": dict(pool.slots_max),
                "resources": {
                    one: {
                        "total": in_units(one, most),
                        "used": in_units(one, used.get((name, one), 0)),
                    }
                    for one, most in pool.resources_max.items()
                },
                "held": held.get(name, 0),
                "running": running.get(name, 0),
                "queued": jobs.get(name, 0) - running.get(name, 0),
            }
            for name, pool in state.pools.items()
            if name != HELD
        ]

    return engine.core.ask(read)


def workers_json(engine: Engine) -> list[dict[str, Any]]:
    """The hosts with their slots and resources."""

    def read() -> list[dict[str, Any]]:
        state = engine.core.state
        found = []
        for host in state.cluster.hosts:
            free, slots = state.spare.free(host.name), sum(host.slots.values())
            idle = sum(state.free(kind).get(host.name, 0) for kind in host.slots)
            found.append(
                {
                    "host": host.name,
                    "slots": slots,
                    "busy": slots - idle,
                    "speed": host.speed,
                    "state": "lost"
                    if host.name in state.lost
                    else "leaving"
                    if host.name in state.leaving
                    else "present",
                    "resources": {
                        name: {
                            "total": in_units(name, total),
                            "used": in_units(name, total - free.get(name, total)),
                        }
                        for name, total in host.resources.items()
                    },
                }
            )
        return found

    return engine.core.ask(read)


def status_json(engine: Engine) -> dict[str, Any]:
    """The numbers of slots and jobs."""
    workers = workers_json(engine)
    counts = engine.store.counts()

    def read() -> tuple[int, int]:
        state = engine.core.state
        left = [(one[0].job, any(phase.launches for phase in one)) for one in state.jobs_left()]
        left += [(state.phases_of(name)[0].job, False) for name in state.not_admitted]
        is_held = [job.pool == HELD and not runs for job, runs in left]
        return sum(runs for _, runs in left), sum(is_held)

    running, held = engine.core.ask(read)
    left = counts.get("open", 0)
    return {
        "scheduler": engine.settings.scheduler,
        "objective": engine.core.objective.penalty,
        "slots": sum(one["slots"] for one in workers),
        "busy": sum(one["busy"] for one in workers),
        "changes": engine.store.notes(CHANGES_MAX),
        "jobs": {
            "running": running,
            "queued": max(0, left - running - held),
            "held": held,
            **{state: counts.get(state, 0) for state in OVER},
        },
    }


def explained_json(engine: Engine, record: StoredJob) -> dict[str, Any]:
    """Why a job holds no more slots."""
    is_over = record.state in OVER
    with suppress(InputError):
        if not is_over and not record.held:
            engine.bring(record.id)
            found = engine.core.explain(record.id)
            text = "\n".join(explanation_lines(found, is_now=True))
            return {"job": record.id, "text": text, **found.to_plain()}
    plain: dict[str, Any] = {"job": record.id, "pool": record.pool}
    if is_over:
        text = f"job {record.id} is over: {record.state}"
    elif record.held:  # The session knows a closed pool only.
        text = f"job {record.id} is held: {_held(record)}"
        remedy = f"`slotwise release {record.id}`"
        plain["waiting"] = asdict(WhyWaiting(record.id, Reason.HELD, "it is held", remedy))
    else:  # It arrives, or its end is not stored yet.
        text = f"job {record.id} holds no slots at this instant"
    return {**plain, "text": f"{text}: {record.reason}" if record.reason else text}
