"""Fluid systems in exact fractions: least attained service, and fair sharing among users.

Each is a function from what jobs have attained to their rates. Between two events (an arrival,
a completion, a job that reaches the level of another) rates are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

Attained = Mapping[int, Fraction]
Rates = dict[int, Fraction]


@dataclass(frozen=True)
class FluidJob:
    """A job that can use `most` slots at once, of a user."""

    arrival: Fraction
    work: Fraction
    most: Fraction
    weight: Fraction = Fraction(1)
    user: str = "u"


@dataclass(frozen=True)
class FairTimeline:
    """The service that each job has attained at each event."""

    instants: Sequence[Fraction]
    service: Sequence[Sequence[Fraction]]
    jobs: Sequence[FluidJob]

    def completions(self) -> list[Fraction]:
        """When each job is complete."""
        return [
            next(
                at
                for at, row in zip(self.instants, self.service, strict=True)
                if row[n] == one.work
            )
            for n, one in enumerate(self.jobs)
        ]

    def of_user(self, user: str, at: float) -> float:
        """The service that the jobs of a user have attained at an instant."""
        numbers = [n for n, one in enumerate(self.jobs) if one.user == user]
        sums = [float(sum(row[n] for n in numbers)) for row in self.service]
        times = [float(instant) for instant in self.instants]
        for (t, s), (u, r) in pairwise(zip(times, sums, strict=True)):
            if at < u:
                return s + (r - s) * (at - t) / (u - t)
        return sums[-1]


def course(jobs: Sequence[FluidJob], rates_of: Callable[[Attained], Rates]) -> FairTimeline:
    """The whole course of a fluid system; it may meet levels, so these are events too."""
    service = [Fraction(0)] * len(jobs)
    now = min(one.arrival for one in jobs)
    instants, rows = [now], [list(service)]
    while any(done < one.work for done, one in zip(service, jobs, strict=True)):
        here = {
            n: service[n]
            for n, one in enumerate(jobs)
            if one.arrival <= now and service[n] < one.work
        }
        rates = rates_of(here) if here else {}
        ends = [one.arrival - now for one in jobs if one.arrival > now]
        ends += [(jobs[n].work - service[n]) / rate for n, rate in rates.items() if rate]
        levels = {n: done / jobs[n].weight for n, done in here.items()}
        slopes = {n: rates[n] / jobs[n].weight for n in here}
        ends += [
            (levels[k] - levels[n]) / (slopes[n] - slopes[k])
            for n in here
            for k in here
            if levels[n] < levels[k] and slopes[n] > slopes[k]
        ]
        step = min(ends)
        now += step
        for n, rate in rates.items():
            service[n] += rate * step
        instants.append(now)
        rows.append(list(service))
    return FairTimeline(instants, rows, jobs)


def least_attained(slots: int, jobs: Sequence[FluidJob]) -> Callable[[Attained], Rates]:
    """All slots to the jobs of the lowest level, what they cannot use to the next level."""

    def rates_of(here: Attained) -> Rates:
        left, rates = Fraction(slots), {}
        levels = {n: done / jobs[n].weight for n, done in here.items()}
        for level in sorted(set(levels.values())):
            tied = {n for n in here if levels[n] == level}
            found = _by_weight(left, {n: jobs[n].weight for n in tied}, jobs)
            rates |= found
            left -= sum(found.values())
        return rates

    return rates_of


def fair_to_users(
    slots: int, jobs: Sequence[FluidJob], weight: Mapping[str, Fraction]
) -> Callable[[Attained], Rates]:
    """All slots to the users by weight, and those of a user to its jobs by weight."""

    def rates_of(here: Attained) -> Rates:
        users = {jobs[n].user for n in here}
        whole = sum(weight[user] for user in users)
        rates = {}
        for n in here:
            inside = sum(jobs[k].weight for k in here if jobs[k].user == jobs[n].user)
            rates[n] = slots * weight[jobs[n].user] / whole * jobs[n].weight / inside
        return rates

    return rates_of


def _by_weight(
    slots: Fraction, weight: Mapping[int, Fraction], jobs: Sequence[FluidJob]
) -> Rates:
    """Slots by weight; what a job cannot use goes to the others."""
    found: Rates = {}
    open_ = dict(weight)
    while open_:
        each = slots / sum(open_.values())
        full = [n for n, heavy in open_.items() if each * heavy >= jobs[n].most]
        if not full:
            return found | {n: each * heavy for n, heavy in open_.items()}
        for n in full:
            found[n] = jobs[n].most
            slots -= jobs[n].most
            del open_[n]
    return found
