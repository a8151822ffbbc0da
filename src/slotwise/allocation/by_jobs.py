"""Slots are divided among jobs first, then inside each job among its ready phases."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slotwise.allocation.problem import Claims
from slotwise.allocation.waterline import water_line
from slotwise.allocation.waterlines import water_lines

OF_JOBS = (
    *("weight", "arrival", "group", "owner", "priority", "unmeasured", "place"),
    *("attained", "finish"),
)
"""The fields that a job has from the first of its claims."""

MANY = 60
"""Above this number of claims of jobs that have several, arrays are faster."""


def share_by_jobs(
    claims: Claims, share: Callable[[Claims], list[float]], separate: Container[int] = ()
) -> list[float]:
    """Slots for each claim, such that the share of a job does not depend on its phases.

    `share` divides the slots among jobs. A job with several claims in a group is one claim for
    it: its guarantee and what it can use are the sums over its phases. What it gets is divided
    equally among its phases, within their min and max shares. O(J) besides `share`, and
    O(J log J) if some job has several claims.

    separate  the groups in which claims of the same job are not joined
    """
    owner = claims.owner
    if len({job.id for job, _ in owner}) == len(owner):
        return share(claims)
    index: dict[Hashable, int] = {}
    number = [
        index.setdefault(place if group in separate else (group, job.id), len(index))
        for place, (group, (job, _)) in enumerate(zip(claims.group, owner, strict=True))
    ]
    if len(index) == len(claims):
        return share(claims)
    return _divided(claims, number, share(_joined(claims, number, len(index))))


def _joined(claims: Claims, number: Sequence[int], count: int) -> Claims:
    """One claim for each job; `number` gives the job of each claim."""
    first = dict(zip(reversed(number), reversed(range(len(number))), strict=True))
    firsts = [first[job] for job in range(count)]
    columns: dict[str, Any] = {
        name: [column[n] for n in firsts] if len(column := getattr(claims, name)) else column
        for name in OF_JOBS
    }
    for name in ("work", "min_share", "max_share"):
        columns[name] = column = getattr(claims, name)
        if len(column):
            columns[name] = sums = [0.0] * count
            for job, value in zip(number, column, strict=True):
                sums[job] += value
    return replace(claims, **columns)


def _divided(claims: Claims, number: Sequence[int], slots: Sequence[float]) -> list[float]:
    """The slots of each job divided equally among its claims, within their limits."""
    members: list[list[int]] = [[] for _ in slots]
    for claim, job in enumerate(number):
        members[job].append(claim)
    if len(claims) - sum([len(inside) == 1 for inside in members]) > MANY:
        min_share, max_share = (
            np.asarray(values, dtype=float) for values in (claims.min_share, claims.max_share)
        )
        weight, group = np.ones(len(claims)), np.asarray(number, dtype=np.intp)
        found = water_lines(np.asarray(slots), group, weight, min_share, max_share)
        shares: list[float] = found.tolist()
        return shares
    shares = [0.0] * len(claims)
    for of_job, inside in zip(slots, members, strict=True):
        if len(inside) == 1:
            shares[inside[0]] = of_job
            continue
        limits = (
            [column[j] for j in inside] for column in (claims.min_share, claims.max_share)
        )
        for j, part in zip(
            inside, water_line(of_job, [1.0] * len(inside), *limits), strict=True
        ):
            shares[j] = part
    return shares
