"""FlowFlex, Figs 4, 7 and 9: one instance in each of the three stages.

The paper gives no numbers for the flows of its figures, so these are ours: three flows on
four slots. There is no randomness, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.flowflex.stage_rows import SLOTS, completions
from slotwise.core.cluster import Cluster
from slotwise.core.costs import Ints
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.schedule import Piece
from slotwise.insight.report.text import number
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.flows import Chains, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import LeastCost, by_deadline, least_cost, shape_shift

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture


HALF = 0.5
"""The fraction of each flow that is counted by its deadline (Fig. 6, line 5)."""

SHOWN = "A"
"""The flow whose first stage is shown."""


def _phase(name: str, slots: int, seconds: float, *after: str) -> Phase:
    """A phase by its max share and its least time."""
    return Phase(name, Tasks(slots, seconds), after=frozenset(after))


FLOWS = (
    Job(
        "A",
        (
            _phase("a1", 2, 2.0),
            _phase("a2", 1, 3.0),
            _phase("a3", 3, 2.0, "a1"),
            _phase("a4", 2, 3.0, "a1", "a2"),
            _phase("a5", 1, 4.0, "a3"),
            _phase("a6", 2, 2.0, "a4", "a5"),
        ),
    ),
    Job(
        "B",
        (
            _phase("b1", 4, 2.0),
            _phase("b2", 1, 4.0),
            _phase("b3", 2, 3.0, "b1"),
        ),
    ),
    Job(
        "C",
        (
            _phase("c1", 3, 3.0),
            _phase("c2", 2, 2.0, "c1"),
            _phase("c3", 1, 5.0, "c1"),
            _phase("c4", 2, 1.0, "c2", "c3"),
        ),
    ),
)

PSEUDO, SHIFTED, LISTED = (
    "Stage 2: pseudo-jobs, by deadlines",
    "Stage 3: their slots, shape shifted to phases",
    "For comparison: list schedule of the DAGs, by the same deadlines",
)


class Stages:
    """The result of each stage for the flows, for the sum of response times."""

    @cached_property
    def _whole(self) -> tuple[FlowProblem, list[PhaseId]]:
        return whole_flows(FLOWS, Cluster.of_slots(SLOTS), Objective())

    @property
    def flows(self) -> FlowProblem:
        """The numeric problem."""
        return self._whole[0]

    @cached_property
    def chains(self) -> Chains:
        """Stage 1."""
        return chains_of(self.flows)

    @cached_property
    def network(self) -> LeastCost:
        """The first half of stage 2."""
        return least_cost(self.flows)

    @cached_property
    def ranking(self) -> Ints:
        """The phases in order of deadlines."""
        return by_deadline(self.flows, self.network.deadlines(HALF))

    @cached_property
    def pieces(self) -> dict[str, list[Piece]]:
        """The schedules shown; a phase or a pseudo-job is named by its flow."""
        ids, chained = self._whole[1], self.chains.problem
        order = by_deadline(chained, self.network.deadlines(HALF))
        listed = PhaseLister(chained).schedule(order)
        counts = [0] * len(FLOWS)
        names = []
        for flow in chained.flow.tolist():
            counts[flow] += 1
            names.append(PhaseId(FLOWS[flow].id, f"{FLOWS[flow].id}{counts[flow]}"))
        own = PhaseLister(self.flows).schedule(self.ranking)
        return {
            PSEUDO: [
                Piece(name, *piece)
                for name, mine in zip(names, listed.pieces(), strict=True)
                for piece in mine
            ],
            SHIFTED: shape_shift(self.flows, self.chains, listed, ids),
            LISTED: [
                Piece(name, *piece)
                for name, mine in zip(ids, own.pieces(), strict=True)
                for piece in mine
            ],
        }

    @property
    def order(self) -> list[str]:
        """The flows by their deadlines."""
        flows = self.flows.flow[self.ranking].tolist()
        return [FLOWS[flow].id for flow in dict.fromkeys(flows)]


def stacked(pieces: Sequence[Piece], order: Sequence[str]) -> list[Row]:
    """Rectangles: at each time, the holders of slots are stacked, flows in this order."""
    instants = sorted({at for piece in pieces for at in (piece.start, piece.end)})
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[object, ...], dict[str, Any]] = {}
    for start, end in pairwise(instants):
        now = [piece for piece in pieces if piece.start <= start and end <= piece.end]
        now.sort(key=lambda piece: (order.index(piece.phase.job), piece.phase.phase))
        low = 0
        for piece in now:
            key = (piece.phase, low, high := low + piece.slots)
            if key in latest and latest[key]["end"] == start:
                latest[key]["end"] = end
            else:
                name = piece.phase.phase
                latest[key] = _rectangle(piece.phase.job, name, start, end, low, high)
                rows.append(latest[key])
            low = high
    return [*rows]


def _rectangle(
    flow: str, name: str, start: float, end: float, low: float, high: float
) -> dict[str, Any]:
    return {"flow": flow, "name": name, "start": start, "end": end, "low": low, "high": high}


def first_stage() -> list[Row]:
    """Fig. 4: the DAG of one flow, its pseudo-schedule and its pseudo-jobs, as rectangles.

    A phase in the DAG is at its earliest start, in a separate row among concurrent phases.
    """
    stages = Stages()
    number_of = next(n for n, job in enumerate(FLOWS) if job.id == SHOWN)
    job, flows, chained = FLOWS[number_of], stages.flows, stages.chains.problem
    mine = np.flatnonzero(flows.flow == number_of).tolist()
    names = [phase.name for phase in job.topological]
    head, length, most = flows.head, flows.length, flows.max_share
    rows: list[Row] = []
    lanes: list[tuple[float, float, float]] = []  # from, to, and the slots below
    for name, phase in zip(names, mine, strict=True):
        start, end = float(head[phase]), float(head[phase] + length[phase])
        low = _free_below(lanes, start, end, int(most[phase]))
        lanes += [(start, end, low + slot) for slot in range(int(most[phase]))]
        rows.append(
            {"part": "phase", "after": " ".join(sorted(job.by_name[name].waits_for))}
            | _rectangle(SHOWN, name, start, end, low, low + float(most[phase]))
        )
    jobs = np.flatnonzero(chained.flow == number_of).tolist()
    for place, pseudo in enumerate(jobs, 1):
        start = float(stages.chains.start[pseudo])
        end, low = start + float(chained.length[pseudo]), 0.0
        for phase in stages.chains.members[pseudo]:
            high = low + float(most[phase])
            rows.append(
                {"part": f"pseudo-job {place}", "after": ""}
                | _rectangle(SHOWN, names[phase - mine[0]], start, end, low, high)
            )
            low = high
    return rows


def _free_below(
    lanes: Sequence[tuple[float, float, float]], start: float, end: float, slots: int
) -> float:
    """The lowest place for a rectangle of this number of slots among others."""
    taken = {low for begins, ends, low in lanes if begins < end and start < ends}
    low = 0.0
    while any(low + slot in taken for slot in range(slots)):
        low += 1
    return low


def network() -> list[Row]:
    """Fig. 7: the work of each flow counted in each interval of time, and its deadline."""
    stages = Stages()
    found, volume = stages.network, stages.flows.volume
    deadlines = found.deadlines(HALF)
    done = found.part / found.part.sum(axis=1, keepdims=True) * volume[:, None]
    begins = [0.0, *found.ends.tolist()]
    return [
        {
            "flow": job.id,
            "begin": begin,
            "end": end,
            "counted": counted,
            "work": float(volume[j]),
            "soonest": float(stages.flows.alone[j]),
            "deadline": float(deadlines[j]),
        }
        for j, job in enumerate(FLOWS)
        for begin, end, counted in zip(
            begins, found.ends.tolist(), done[j].tolist(), strict=False
        )
        if counted > 0
    ]


def later_stages() -> list[Row]:
    """Fig. 9: the pseudo-jobs, the phases in their slots, and the list schedule of the DAGs."""
    stages = Stages()
    return [
        {"schedule": title} | dict(row)
        for title, pieces in stages.pieces.items()
        for row in stacked(pieces, stages.order)
    ]


Cells = list[tuple[str, ...]]
"""The cells of a printed table, the headings first."""


def _first_cells(rows: Sequence[Row]) -> Cells:
    """The pseudo-jobs."""
    cells: Cells = [("", "phases", "most slots", "seconds", "work")]
    jobs = [row for row in rows if row["part"] != "phase"]
    for part in dict.fromkeys(row["part"] for row in jobs):
        mine = [row for row in jobs if row["part"] == part]
        slots, length = max(row["high"] for row in mine), mine[0]["end"] - mine[0]["start"]
        names = ", ".join(row["name"] for row in mine)
        cells.append((part, names, number(slots), number(length), number(slots * length)))
    return cells


def _network_cells(rows: Sequence[Row]) -> Cells:
    """The flows and their deadlines."""
    flows = {row["flow"]: row for row in rows}
    columns = ("work", "soonest", "deadline")
    return [
        ("flow", *columns),
        *((flow, *(number(row[name]) for name in columns)) for flow, row in flows.items()),
    ]


def _later_cells(rows: Sequence[Row]) -> Cells:
    """When each flow is complete."""
    flows = sorted({row["flow"] for row in rows})
    cells: Cells = [("complete at", *flows, "together")]
    for title in dict.fromkeys(row["schedule"] for row in rows):
        ends = completions([row for row in rows if row["schedule"] == title])
        said = (number(ends[flow]) for flow in flows)
        cells.append((title, *said, number(sum(ends.values()))))
    return cells


@dataclass(frozen=True, slots=True)
class StageFigure:
    """One figure of the instance: the function that makes its rows, and their presentation."""

    name: str
    title: str
    make: Callable[[], list[Row]]
    cells: Callable[[Sequence[Row]], Cells]
    axis: str = "time (s)"
    runs: int = 1

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One: there is no randomness."""
        return [self.make]

    def rows(self, outcomes: Sequence[list[Row]]) -> Sequence[Row]:
        """Rectangles, or the work counted in each interval."""
        return outcomes[0]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The rows in summary."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD)
        headings, *lines = self.cells(rows)
        for place, heading in enumerate(headings):
            table.add_column(heading, justify="left" if place == 0 else "right")
        for line in lines:
            table.add_row(*line)
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture of these rows."""
        from experiments.flowflex.first_stage_picture import draw_first_stage
        from experiments.flowflex.later_stages_picture import draw_later_stages
        from experiments.flowflex.network_picture import draw_network

        draw = {
            first_stage: draw_first_stage,
            network: draw_network,
            later_stages: draw_later_stages,
        }[self.make]
        return draw(self, rows)


FLOWFLEX_STAGES = (
    StageFigure(
        "flowflex-4",
        "FlowFlex, stage 1: a flow becomes a chain of pseudo-jobs",
        first_stage,
        _first_cells,
    ),
    StageFigure(
        "flowflex-7",
        "FlowFlex, stage 2: deadlines by a minimum cost flow",
        network,
        _network_cells,
    ),
    StageFigure(
        "flowflex-9",
        "FlowFlex, stages 2 and 3: from pseudo-jobs to phases",
        later_stages,
        _later_cells,
    ),
)
