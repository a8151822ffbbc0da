"""Fair shares by dominant resource, found in ways that share nothing with the code.

`by_dominant_filling` is for claims in one pool: all rise together, in exact fractions, until
one has its max share or a resource is used up. `by_small_steps` is for trees: it gives away a
small part of a slot again and again, to who is furthest behind, as hierarchical dominant
resource fairness does with whole tasks. It is right to a few such parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from oracles.pools import children, demand, inside, jobs_in, owed
from slotwise.core.resources import Resources
from slotwise.policy.allocator import Claims


def needing(
    claims: Claims, requests: Sequence[Mapping[str, int]], totals: Mapping[str, int]
) -> Claims:
    """The claims with these requests of a task, which name its slots `task`."""
    owner = [
        (job, replace(phase, slots=request["task"]))
        for request, (job, phase) in zip(requests, claims.owner, strict=True)
    ]
    needed = [Resources(request) for request in requests]
    return replace(claims, owner=owner, request=needed, totals=Resources(totals))


def used(claims: Claims, shares: Sequence[float], members: Sequence[int]) -> dict[str, float]:
    """What these claims use of each resource."""
    amounts = dict.fromkeys(claims.totals, 0.0)
    for j in members:
        for name, amount in claims.request[j].items():
            amounts[name] += shares[j] * amount / claims.request[j]["task"]
    return amounts


def by_dominant_filling(claims: Claims) -> list[Fraction]:
    """The slots of claims in one pool without min shares, in exact fractions."""
    everyone = range(len(claims))
    need = [
        {name: Fraction(amount, request["task"]) for name, amount in request.items()}
        for request in claims.request
    ]
    totals = {name: Fraction(total) for name, total in claims.totals.items()}
    speed = [
        Fraction(claims.weight[j]) / max(a / totals[name] for name, a in need[j].items())
        for j in everyone
    ]
    shares = [Fraction(0)] * len(claims)
    rising = list(everyone)
    while rising:
        rate = {name: sum(speed[j] * need[j].get(name, 0) for j in rising) for name in totals}
        held = {
            name: sum(shares[j] * need[j].get(name, 0) for j in everyone) for name in totals
        }
        steps = [(totals[n] - held[n]) / rate[n] for n in totals if rate[n]]
        steps += [(Fraction(claims.max_share[j]) - shares[j]) / speed[j] for j in rising]
        for j in rising:
            shares[j] += speed[j] * min(steps)
        full = {n for n in totals if rate[n] and held[n] + rate[n] * min(steps) == totals[n]}
        rising = [
            j for j in rising if shares[j] < claims.max_share[j] and not full & {*need[j]}
        ]
    return shares


def by_small_steps(claims: Claims, step: float) -> list[float]:
    """The slots of claims in a tree of pools, given away in these parts of a slot."""
    shares = [0.0] * len(claims)
    everything = range(len(claims))

    def is_blocked(j: int) -> bool:
        if shares[j] + step > claims.max_share[j]:
            return True
        pool, limits = claims.group[j], []
        limits.append((everything, {**claims.totals}, float(claims.capacity)))
        while pool >= 0:
            group = claims.groups[pool]
            limits.append((inside(claims, pool), {**group.limits}, group.slots_max))
            pool = group.parent
        for members, amounts, slots in limits:
            held = used(claims, shares, members)
            if sum(shares[m] for m in members) + step > slots:
                return True
            for name, amount in claims.request[j].items():
                more = step * amount / claims.request[j]["task"]
                if name in amounts and held[name] + more > amounts[name] * (1 + 1e-12):
                    return True
        return False

    def behind(members: Sequence[int], low: float, weight: float) -> tuple[float, float]:
        """Below its guarantee, the part of it; then its dominant share over its weight."""
        slots = sum(shares[m] for m in members)
        held = used(claims, shares, members)
        share = max(held[name] / claims.totals[name] for name in held)
        return (slots / low if slots < low else 1.0), share / weight

    while True:
        free = {j for j in everything if not is_blocked(j)}
        if not free:
            return shares
        pool = -1
        while below := [n for n in children(claims, pool) if free & {*inside(claims, n)}]:
            pool = min(
                below,
                key=lambda n: behind(
                    inside(claims, n),
                    min(owed(claims, n), demand(claims, n)),
                    claims.groups[n].weight,
                ),
            )
        jobs = [job for job in jobs_in(claims, pool) if free & {*job}]
        if claims.groups[pool].policy == "fifo":
            lacking = [job for job in jobs if shares[job[0]] < claims.min_share[job[0]]]
            if lacking:
                job = min(lacking, key=lambda job: shares[job[0]] / claims.min_share[job[0]])
            else:
                urgency = claims.priority or [1.0] * len(claims)
                job = min(jobs, key=lambda job: (-urgency[job[0]], job[0]))
        else:
            job = min(
                jobs,
                key=lambda job: behind(
                    job, sum(claims.min_share[j] for j in job), claims.weight[job[0]]
                ),
            )
        phase = min(
            [j for j in job if j in free], key=lambda j: behind([j], claims.min_share[j], 1.0)
        )
        shares[phase] += step
