"""Objectives: the sum (minisum) or the maximum (minimax) of the costs of all jobs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite, nextafter
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from slotwise.core.errors import InputError, shown, suggestion
from slotwise.core.job import Job

Aggregate = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Objective:
    """The function to minimise: the name of a penalty, and its sum or max over the jobs.

    InputError for an unknown penalty or aggregate, or for a sum of makespans.
    """

    penalty: str = "response"
    aggregate: Aggregate = "sum"

    def __post_init__(self) -> None:
        if not isinstance(self.penalty, str) or self.penalty not in PENALTIES:
            raise InputError(
                f"objective: unknown penalty {shown(self.penalty)};"
                f" {suggestion(self.penalty, PENALTIES)}"
            )
        if self.aggregate not in ("sum", "max"):
            raise InputError(f"objective: aggregate is {shown(self.aggregate)}; use sum or max")
        if self.penalty == "makespan" and self.aggregate == "sum":
            raise InputError("objective: makespan is a maximum; set aggregate to max")

    @classmethod
    def named(cls, penalty: str) -> Objective:
        """The default objective of a penalty: its sum, for makespan its maximum."""
        return cls(penalty, "max" if penalty == "makespan" else "sum")

    @classmethod
    def of(cls, given: Objective | str) -> Objective:
        """The objective that a user gives, perhaps by the name of a penalty."""
        if isinstance(given, str):
            return cls.named(given)
        if not isinstance(given, Objective):
            raise InputError(
                f"objective is {shown(given)}; give the name of a penalty, or a"
                " slotwise.Objective"
            )
        return given

    def penalty_of(self, job: Job) -> str:
        """The name of the penalty of one job: its own if it states one."""
        return job.penalty or self.penalty

    def penalties(self, jobs: Iterable[Job]) -> tuple[str, ...]:
        """The names of the penalties of these jobs, the one of the objective first."""
        names = {self.penalty_of(job) for job in jobs} or {self.penalty}
        return tuple(sorted(names, key=lambda name: (name != self.penalty, name)))

    def cost(self, job: Job, size: Size) -> Cost:
        """The cost of the job as a function of its completion time.

        InputError if its penalty is unknown, or if the job lacks the deadline or steps that its
        penalty needs.
        """
        penalty = self.penalty_of(job)
        if penalty not in PENALTIES:
            raise InputError(
                f"job {job.id!r}: unknown penalty {penalty!r}; {suggestion(penalty, PENALTIES)}"
            )
        return PENALTIES[penalty](job, size)

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise InputError for jobs that lack what their penalty needs."""
        for job in jobs:
            self.cost(job, Size(1.0, 1.0))

    def value(
        self,
        jobs: Mapping[str, Job],
        completion: Mapping[str, float],
        size: Mapping[str, Size],
    ) -> float:
        """The value over the jobs that have a completion time; 0 without any."""
        costs = [self.cost(jobs[job], size[job]).at(at) for job, at in completion.items()]
        return self.total(costs)

    def total(self, costs: Iterable[float]) -> float:
        """The sum or the maximum of costs; 0 without any."""
        return max(costs, default=0.0) if self.aggregate == "max" else sum(costs)


def in_words(penalties: Sequence[str]) -> str:
    """Names of penalties, such as "response, lateness and sla, by job"."""
    *most, last = penalties
    return f"{', '.join(most)} and {last}, by job" if most else last


def gap_of(value: float, bound: float) -> float | None:
    """The relative gap between a value and its lower bound.

    Lateness and tardiness may have lower bounds <= 0, for which a relative gap is not defined:
    then it is 0 if the value equals the bound up to rounding, otherwise None. It is also None
    if the bound is so small that the ratio is not finite.
    """
    if bound <= 0:
        return 0.0 if isclose(value, bound, rel_tol=MET, abs_tol=MET) else None
    gap = value / bound - 1
    return gap if isfinite(gap) else None


# Costs: the cost of one job as a function of its completion time alone (FLEX 2.1, Fig. 1).

MET = 1e-9
"""Relative; a deadline exceeded by at most this part counts as met, because of rounding."""


def is_met(due: float, completion: float) -> bool:
    """Whether this completion meets the due date, up to rounding (`MET`)."""
    return completion <= met_until(due)


def met_until(instant: float) -> float:
    """The latest completion that still counts as meeting this instant, seconds."""
    return instant + MET * abs(instant)


class Cost(Protocol):
    """A non-decreasing function of completion time, in seconds.

    Its values have the unit of the penalty: seconds for a response time, none for a stretch,
    money for an SLA.
    """

    def at(self, completion: float) -> float:
        """The cost of this completion. O(1), with K steps O(log K)."""
        ...

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`; inf if all do, -inf if none.

        O(1), with K steps O(log K). A `Curve` is evaluated about 100 times.
        """
        ...

    @property
    def kinks(self) -> tuple[float, ...]:
        """The instants, seconds, at which its slope changes or after which it jumps, in order.

        Between them it is a straight line, except for a `Curve`. O(1), with K steps O(K).
        """
        ...

    def since(self, instant: float) -> Cost:
        """The same cost on a clock that shows 0 at this instant. O(1), with K steps O(K)."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """slope * (C - origin), with slope > 0: response, stretch, slowdown, lateness, makespan."""

    slope: float
    origin: float = 0.0

    def at(self, completion: float) -> float:
        """The cost of this completion; negative before the origin."""
        return self.slope * (completion - self.origin)

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`."""
        return self.origin + level / self.slope

    @property
    def kinks(self) -> tuple[float, ...]:
        """None: it is straight."""
        return ()

    def since(self, instant: float) -> Line:
        """The same line on a clock that shows 0 at this instant."""
        return Line(self.slope, self.origin - instant)


@dataclass(frozen=True, slots=True)
class Hinge:
    """slope * max(0, C - due), with slope > 0: tardiness."""

    slope: float
    due: float

    def at(self, completion: float) -> float:
        """The cost of this completion; 0 up to the due date."""
        return self.slope * max(0.0, completion - self.due)

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`; -inf for a level below 0."""
        return self.due + level / self.slope if level >= 0 else -inf

    @property
    def kinks(self) -> tuple[float, ...]:
        """The due date."""
        return (self.due,)

    def since(self, instant: float) -> Hinge:
        """The same hinge on a clock that shows 0 at this instant."""
        return Hinge(self.slope, self.due - instant)


@dataclass(frozen=True, slots=True)
class Steps:
    """The cost of the last step passed, 0 before the first: tardy jobs and SLAs.

    steps  (instant, cost) with increasing instants and non-decreasing costs >= 0; a step is
           passed by completing later than its instant, up to rounding (`MET`).
    """

    steps: tuple[tuple[float, float], ...]

    def at(self, completion: float) -> float:
        """The cost of this completion."""
        passed = bisect_left(self.steps, completion, key=lambda step: met_until(step[0]))
        return self.steps[passed - 1][1] if passed else 0.0

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`: the instant of the next step."""
        if level < 0:
            return -inf
        cheap = bisect_right(self.steps, level, key=lambda step: step[1])
        return self.steps[cheap][0] if cheap < len(self.steps) else inf

    @property
    def kinks(self) -> tuple[float, ...]:
        """The instants of the steps."""
        return tuple(instant for instant, _ in self.steps)

    def since(self, instant: float) -> Steps:
        """The same steps on a clock that shows 0 at this instant."""
        return Steps(tuple((at - instant, cost) for at, cost in self.steps))


@dataclass(frozen=True, slots=True)
class Curve:
    """Any non-decreasing function of the completion time, for custom penalties.

    Only its values are known. So its inverse is found by bisection, and lower bounds replace it
    by a staircase below it. Use one of the classes above if it fits.
    """

    function: Callable[[float], float]
    begins: float = 0.0

    def at(self, completion: float) -> float:
        """The cost of this completion."""
        return self.function(self.begins + completion)

    def latest(self, level: float) -> float:
        """The latest completion from 0 on that costs at most `level`, by bisection.

        About 100 evaluations.
        """
        if self.at(0.0) > level:
            return -inf
        early, late = 0.0, 1.0
        while self.at(late) <= level:
            early, late = late, 2 * late
            if late > FOREVER:
                return inf
        while nextafter(early, inf) < late and late - early > MET * MET * late:
            middle = (early + late) / 2
            early, late = (middle, late) if self.at(middle) <= level else (early, middle)
        return early

    @property
    def kinks(self) -> tuple[float, ...]:
        """Unknown, so empty."""
        return ()

    def since(self, instant: float) -> Curve:
        """The same curve on a clock that shows 0 at this instant."""
        return replace(self, begins=self.begins + instant)


FOREVER = 1e18
"""Seconds; a curve that does not exceed a level by then is assumed never to."""


# Penalties: the cost of completing a job at a time (FLEX 2.1). One function each.
#
# A penalty converts a job and its size to a cost: a non-decreasing function of completion time.
# To add a penalty, add a function here and its name to `PENALTIES`.


class Size(NamedTuple):
    """The size of a job, in seconds at speed 1; both > 0.

    work   of all its phases
    alone  the minimum time from its arrival to its completion alone on the cluster
    """

    work: float
    alone: float


Penalty = Callable[[Job, Size], Cost]
"""The cost of a job of this size as a function of its completion time."""


def response(job: Job, size: Size) -> Line:
    """Weighted response time, w (C - arrival)."""
    return Line(job.weight, job.arrival)


def stretch(job: Job, size: Size) -> Line:
    """Weighted stretch, w (C - arrival) / work, as the papers define it."""
    return Line(job.weight / size.work, job.arrival)


def slowdown(job: Job, size: Size) -> Line:
    """Weighted slowdown, w (C - arrival) / (minimum time alone): at least w."""
    return Line(job.weight / size.alone, job.arrival)


def tardy(job: Job, size: Size) -> Steps:
    """The weight of a job that misses its deadline; the sum counts the tardy jobs by weight.

    InputError without a deadline, as for `tardiness` and `lateness`.
    """
    return Steps(((_deadline(job, "tardy"), job.weight),))


def tardiness(job: Job, size: Size) -> Hinge:
    """Weighted tardiness, w max(0, C - deadline)."""
    return Hinge(job.weight, _deadline(job, "tardiness"))


def lateness(job: Job, size: Size) -> Line:
    """Weighted lateness, w (C - deadline): negative for a job that is early."""
    return Line(job.weight, _deadline(job, "lateness"))


def sla(job: Job, size: Size) -> Steps:
    """The cost of the last step passed, as stated for the job; weights do not matter.

    InputError without steps.
    """
    if not job.steps:
        raise InputError(
            f"job {job.id!r}: penalty sla needs steps; give it steps: [[seconds, cost], ...]"
        )
    return Steps(job.steps)


def makespan(job: Job, size: Size) -> Line:
    """Completion time; its maximum over the jobs is the makespan."""
    return Line(1.0)


PENALTIES: Mapping[str, Penalty] = MappingProxyType(
    {
        "response": response,
        "stretch": stretch,
        "slowdown": slowdown,
        "tardy": tardy,
        "tardiness": tardiness,
        "lateness": lateness,
        "sla": sla,
        "makespan": makespan,
    }
)
"""The penalties by name."""


def _deadline(job: Job, penalty: str) -> float:
    if job.deadline is None:
        raise InputError(
            f"job {job.id!r}: penalty {penalty} needs a deadline; give it deadline: seconds"
        )
    return job.deadline
