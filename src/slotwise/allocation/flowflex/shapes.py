"""Schedules in whole slots; for pseudo-jobs, Stage 3 (FlowFlex 4.3, Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.allocation.flowflex.chains import Chains
from slotwise.allocation.flowflex.flows import Flows
from slotwise.allocation.flowflex.list_schedule import Listed, Lister
from slotwise.allocation.flowflex.solve import Solution
from slotwise.allocation.mcnaughton import whole_slots, wrap_around
from slotwise.model.job import PhaseId
from slotwise.model.schedule import Piece


def pieces_of(flows: Flows, solution: Solution, ids: Sequence[PhaseId]) -> list[Piece]:
    """The schedule of a solution, in whole slots, by the names of its phases."""
    if solution.packing is not None:
        pieces: list[Piece] = []
        for kind in range(len(flows.capacity)):  # Each kind has its own slots.
            mine = np.flatnonzero(flows.kind == kind).tolist()
            packing = [solution.packing[phase] for phase in mine]
            pieces += whole_slots([ids[phase] for phase in mine], packing)
        return pieces
    if solution.chains is not None:
        listed = Lister(solution.chains.problem).schedule(solution.ranking)
        return shape_shift(flows, solution.chains, listed, ids)
    listed = Lister(flows).schedule(solution.ranking)
    return [
        Piece(name, start, end, slots)
        for name, own in zip(ids, listed.pieces(), strict=True)
        for start, end, slots in own
    ]


def shape_shift(
    flows: Flows, chains: Chains, listed: Listed, ids: Sequence[PhaseId]
) -> list[Piece]:
    """The pieces of phases in place of those of pseudo-jobs, with the same slots and times.

    While a pseudo-job holds s of the r slots that it can use, each of its phases gets s / r of
    its max share. McNaughton's rule converts that to whole slots, at most its max share. So at
    the end of the piece, each phase has done the work of s / r of that time in the
    pseudo-schedule. Precedence holds because it holds between pseudo-jobs. Linear in the size
    of the result.
    """
    pieces: list[Piece] = []
    max_share, height = flows.max_share.tolist(), chains.problem.max_share.tolist()
    for job, own in enumerate(listed.pieces()):
        members = chains.members[job]
        for start, end, slots in own:
            shares = [(ids[phase], max_share[phase] * slots / height[job]) for phase in members]
            pieces += wrap_around(shares, start, end)
    return pieces
