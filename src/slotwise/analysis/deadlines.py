"""Metrics of deadlines and service-level agreements, over the completed jobs."""

from __future__ import annotations

from collections.abc import Mapping

from slotwise.model.job import Job
from slotwise.objective.cost import Steps, is_met


def deadline_metrics(
    jobs: Mapping[str, Job], completion: Mapping[str, float]
) -> dict[str, float | None]:
    """Tardy jobs, tardiness and lateness in seconds, and the cost of agreements, by metric.

    Over the jobs that have a completion time. The metrics of deadlines are None if none of them
    has a deadline, and that of agreements is None if none has steps.
    """
    due = {name: at for name in completion if (at := jobs[name].deadline) is not None}
    # A deadline that is missed only by rounding counts as met in all metrics.
    tardy = {
        name: completion[name] - at
        for name, at in due.items()
        if not is_met(at, completion[name])
    }
    late = [completion[name] - at for name, at in due.items()]
    agreed = [name for name in completion if jobs[name].steps]
    costs = [Steps(jobs[name].steps).at(completion[name]) for name in agreed]
    return {
        "jobs_tardy": len(tardy) if due else None,
        "jobs_tardy_weighted": sum(jobs[name].weight for name in tardy) if due else None,
        "tardiness_mean": sum(tardy.values()) / len(due) if due else None,
        "tardiness_max": max(tardy.values(), default=0.0) if due else None,
        "lateness_max": max(late, default=None),
        "sla_cost": sum(costs) if costs else None,
    }
