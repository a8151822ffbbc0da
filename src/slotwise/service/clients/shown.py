"""The jobs of a server as a session shows its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from slotwise.insight.report.session_table import SessionJob, SessionJobs
from slotwise.service.clients.transport import Transport

OVER = ("done", "failed", "cancelled", "lost")
"""The states of jobs that are over."""

LEFT = ("queued", "waiting", "held", "running")
"""The other states."""

LEFT_MAX, OVER_MAX = 1000, 100
"""The most jobs that are listed: of those not over, and of those over."""

STATES = {"done": "completed", "lost": "failed", "queued": "waiting", "held": "waiting"}
"""The states of a server that a session shows by other names."""


def shown_jobs(
    transport: Transport, server: Mapping[str, Any], most: int | None, waiting: int
) -> SessionJobs:
    """The jobs of a server, of all its users; `server` is what `GET /v1` has answered."""
    started = float(server["started"])
    left, over = (
        transport.get("/v1/jobs", state=",".join(states), limit=limit)["jobs"]
        for states, limit in ((LEFT, most or LEFT_MAX), (OVER, OVER_MAX))
    )
    counts = Counter(server["jobs"])
    return SessionJobs(
        scheduler=server["scheduler"],
        is_open=server["state"] == "running",
        at=time.time() - started,
        slots=server["slots"],
        held=server["busy"],
        rows=tuple(shown_job(job, started) for job in (*left, *reversed(over))),
        left=sum(counts[state] for state in LEFT),
        over=sum(counts[state] for state in OVER),
        waiting=waiting,
        title="server",
    )


def shown_job(job: Mapping[str, Any], started: float) -> SessionJob:
    """A job of the server as a session shows it."""
    state, submitted = job["state"], job["submitted"]
    shown = STATES.get(state, state)
    return SessionJob(
        job=job["id"],
        pool=job["pool"],
        state=shown,
        tasks=job["tasks"],
        done=job["tasks_done"],
        running=job["tasks_running"],
        slots=job.get("slots") or 0,
        since=max(0.0, submitted - started) if shown == "waiting" else None,
        reason=job.get("reason") or "",
        response=(job.get("ended") or time.time()) - submitted,
    )
