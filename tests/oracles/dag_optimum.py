"""The optimum of small problems of jobs that are DAGs: a linear program an order of events.

Independent of slotwise: it shares only the shapes of costs (`slotwise.core.objective`), not the
allocation. HiGHS, through scipy, solves the programs.

What a phase may do changes only where a set of phases is done: all that some phase waits for,
with all that these wait for; or a whole job. Call these the events. One that is part of another
does not come later. Once the order of all events is fixed, they cut time into as many columns
as there are events, and within a column every phase may as well hold a constant share. So, for
a phase i, the columns k behind the event that it waits for and up to the first event that it
belongs to, the length l_k of a column and the part x_ik of its work that is done there:

    0 <= work_i x_ik <= max_share_i l_k
    sum_i work_i x_ik <= capacity l_k, for each kind of slot
    sum_k x_ik = 1

and a job is complete with its own event, at l_0 + ... + l_k. Lines and hinges are linear in it,
and so is their maximum with one variable more. For steps each choice of the last step not to be
passed is tried, the cheapest first: a due date.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job
from slotwise.core.objective import MET, Cost, Hinge, Line, Objective, Steps
from slotwise.insight.bound import Work, sizes_of

Event = frozenset[int]
"""Phases that are done."""

Order = tuple[Event, ...]

Dues = tuple[float, ...]
"""The latest completion of each job, inf where it may be any."""

INFEASIBLE = 2
"""What scipy calls a program without a solution."""

PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The most that HiGHS offers; in columns and works of about 1."""


def optimum(
    jobs: Sequence[Job], cluster: Cluster, objective: Objective, grace: float = MET
) -> float:
    """The least value of all malleable schedules of jobs that are all present at 0.

    Any number of slots, fractions too, from 0 to its max share, for each phase at each instant;
    min shares are ignored. Costs are lines, hinges and steps; `grace` is by what part
    of it a due date may be missed. For about 6 phases: M! programs for M events at worst.
    """
    programs = Programs(Network.of(jobs, cluster, objective), objective.aggregate)
    costs = programs.network.costs
    free = tuple(inf for _ in costs)
    if objective.aggregate == "max":
        charges = {c for cost in costs if isinstance(cost, Steps) for _, c in cost.steps}
        best = inf if charges else programs.least_value(free)
        for charge in sorted(charges | {0.0}) if charges else ():
            if charge >= best:
                break
            dues = tuple(_due(cost, charge, grace) for cost in costs)
            best = min(best, max(charge, programs.least_value(dues)))
        return best
    choices = [_choices(cost, grace) for cost in costs]
    base, best = programs.least_value(free), inf
    for choice in sorted(product(*choices), key=lambda chosen: sum(c for c, _ in chosen)):
        charge = sum(c for c, _ in choice)
        if charge + base >= best:
            break
        best = min(best, charge + programs.least_value(tuple(due for _, due in choice)))
    return best


def _due(cost: Cost, charge: float, grace: float) -> float:
    """Until when steps cost no more than this; inf for costs of other shapes."""
    too_expensive = (
        [at for at, c in cost.steps if c > charge] if isinstance(cost, Steps) else []
    )
    return min(too_expensive, default=inf) * (1 + grace)


def _choices(cost: Cost, grace: float) -> list[tuple[float, float]]:
    """What may be paid in steps, and the due date that this buys."""
    charges = [0.0, *(c for _, c in cost.steps)] if isinstance(cost, Steps) else [0.0]
    return [(charge, _due(cost, charge, grace)) for charge in charges]


@dataclass(frozen=True, slots=True)
class Network:
    """The jobs as numbers: of each phase its work, max share, kind and all that is before it.

    owned  the phases of each job
    """

    capacity: dict[str, int]
    work: tuple[float, ...]
    max_share: tuple[float, ...]
    kind: tuple[str, ...]
    before: tuple[Event, ...]
    owned: tuple[Event, ...]
    costs: tuple[Cost, ...]

    @classmethod
    def of(cls, jobs: Sequence[Job], cluster: Cluster, objective: Objective) -> Network:
        """Read the jobs; the cluster's slots have speed 1."""
        assert all(job.arrival == 0 for job in jobs)
        sizes = sizes_of(jobs, cluster, Work.estimated(jobs))
        costs = tuple(objective.cost(job, sizes[job.id]) for job in jobs)
        work: list[float] = []
        max_share: list[float] = []
        kind: list[str] = []
        before: list[Event] = []
        owned: list[Event] = []
        of_job: dict[str, Event] = {}
        for job in jobs:  # Each comes after the jobs that it waits for.
            number: dict[str, int] = {}
            earlier = frozenset[int]().union(*(of_job[name] for name in job.after))
            for phase in job.topological:
                number[phase.name] = len(work)
                near = [*earlier, *(number[name] for name in phase.waits_for)]
                before.append(frozenset(near).union(*(before[i] for i in near)))
                work.append(phase.tasks.work_total() or 0.0)
                kind.append(cluster.slot_kind(phase.kind))
                max_share.append(min(phase.slots_most, cluster.capacity[kind[-1]]))
            owned.append(frozenset(number.values()))
            of_job[job.id] = owned[-1]
        parts = map(tuple, (work, max_share, kind, before, owned))
        return cls(dict(cluster.capacity), *parts, costs)

    def orders(self) -> Iterator[Order]:
        """All orders of the events in which none is behind one that it is part of."""
        events = {event for event in self.before if event} | set(self.owned)

        def lay(order: Order, left: frozenset[Event]) -> Iterator[Order]:
            if not left:
                yield order
            for event in sorted(left, key=sorted):
                if not any(other < event for other in left):
                    yield from lay((*order, event), left - {event})

        return lay((), frozenset(events))

    def cannot(self, dues: Dues) -> bool:
        """Whether due dates are too early for the work that is to be done by them."""
        for kind, slots in self.capacity.items():
            done = 0.0
            for due, phases in sorted(zip(dues, self.owned, strict=True), key=lambda p: p[0]):
                done += sum(self.work[i] for i in phases if self.kind[i] == kind)
                if done > slots * due * (1 + 1e-6):
                    return True
        return False


class Programs:
    """The programs of all orders of events."""

    def __init__(self, network: Network, aggregate: str) -> None:
        self.network = network
        self._programs = [Program(network, order, aggregate) for order in network.orders()]

    def least_value(self, dues: Dues) -> float:
        """The least of lines and hinges over all orders, with these due dates; inf if none."""
        if self.network.cannot(dues):
            return inf
        if not any(isinstance(cost, Line | Hinge) for cost in self.network.costs):
            return min((0.0 for p in self._programs if p.run(dues) is not None), default=inf)
        values = (program.run(dues) for program in self._programs)
        return min((value for value in values if value is not None), default=inf)


class Program:
    """The program of one order of events.

    Its variables are the lengths, the parts of work, and one more for each hinge, or for the
    maximum. Lengths are counted in the time that all work takes on all slots.
    """

    def __init__(self, network: Network, order: Order, aggregate: str) -> None:
        total = sum(network.work) or 1.0
        self._unit = total / sum(network.capacity.values())
        self._columns = len(order)
        self._spans = [_span(network, order, i) for i in range(len(network.work))]
        cells = [(i, k) for i, span in enumerate(self._spans) for k in span]
        further = len(network.costs) if aggregate == "sum" else 1
        self._first = self._columns + len(cells)
        self._width = self._first + further
        self._ends = [order.index(owned) for owned in network.owned]
        self._above: list[NDArray[np.float64]] = []
        self._limits: list[float] = []
        self._same = np.zeros((len(network.work), self._width))
        self._price = np.zeros(self._width)
        self._constant = 0.0
        self._lowest = np.zeros(self._width)
        for number, (i, k) in enumerate(cells, start=self._columns):
            self._same[i, number] = 1.0
            if network.work[i] > 0:
                pace = network.max_share[i] * self._unit / network.work[i]
                self._row({number: 1.0, k: -pace}, 0.0)
        for kind, slots in network.capacity.items():
            for k in range(self._columns):
                done = {
                    number: network.work[i] / total
                    for number, (i, column) in enumerate(cells, start=self._columns)
                    if column == k and network.kind[i] == kind
                }
                self._row({**done, k: -slots * self._unit / total}, 0.0)
        self._charge(network.costs, aggregate)

    def run(self, dues: Dues) -> float | None:
        """Its optimum with these due dates, steps left out; None if there is nothing."""
        late = [(end, due) for end, due in zip(self._ends, dues, strict=True) if due < inf]
        rows = np.zeros((len(late), self._width))
        for row, (end, _) in enumerate(late):
            rows[row, : end + 1] = 1.0
        found = linprog(
            self._price,
            A_ub=np.vstack([*self._above, rows]),
            b_ub=[*self._limits, *(due / self._unit for _, due in late)],
            A_eq=self._same,
            b_eq=np.ones(len(self._same)),
            bounds=np.column_stack((self._lowest, np.full(self._width, inf))),
            options=PRECISE,
        )
        if found.x is None:
            assert found.status == INFEASIBLE, found.message
            return None
        return float(found.fun) * self._unit + self._constant

    def _charge(self, costs: Sequence[Cost], aggregate: str) -> None:
        """Charge lines and hinges, in the unit of time; steps are due dates and free."""
        is_max = aggregate == "max"
        if is_max and any(isinstance(cost, Line | Hinge) for cost in costs):
            self._price[self._first] = 1.0
            if all(isinstance(cost, Line) for cost in costs):
                self._lowest[self._first] = -inf
        for j, (cost, end) in enumerate(zip(costs, self._ends, strict=True)):
            until = dict.fromkeys(range(end + 1), 0.0)
            match cost:
                case Line(slope, origin) if not is_max:
                    self._price[list(until)] += slope
                    self._constant -= slope * origin
                case Line(slope, zero) | Hinge(slope, zero):
                    largest = self._first if is_max else self._first + j
                    self._price[largest] = 1.0
                    row = dict.fromkeys(until, slope)
                    self._row({**row, largest: -1.0}, slope * zero / self._unit)
                case Steps():
                    pass
                case _:
                    raise TypeError(f"the oracle knows no {cost}")

    def _row(self, coefficients: dict[int, float], limit: float) -> None:
        """The sum of these is at most the limit."""
        row = np.zeros(self._width)
        row[list(coefficients)] = list(coefficients.values())
        self._above.append(row)
        self._limits.append(limit)


def _span(network: Network, order: Order, i: int) -> range:
    """The columns in which a phase may work."""
    begin = order.index(network.before[i]) + 1 if network.before[i] else 0
    end = next(place for place, event in enumerate(order) if i in event)
    return range(begin, end + 1)
