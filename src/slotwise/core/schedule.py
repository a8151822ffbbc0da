"""Schedules: slots per phase as step functions of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, inf, ulp

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, PhaseId

TOLERANCE = 1e-9
"""Relative tolerance for amounts of work and for instants."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The number of slots that a phase holds in the interval [start, end), in seconds."""

    phase: PhaseId
    start: float
    end: float
    slots: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A malleable schedule: pieces of one phase follow each other and never overlap."""

    pieces: tuple[Piece, ...]

    def completion(self) -> dict[str, float]:
        """The completion time of each job: the end of its last piece."""
        done: dict[str, float] = {}
        for piece in self.pieces:
            done[piece.phase.job] = max(done.get(piece.phase.job, 0.0), piece.end)
        return done

    def check(self, jobs: Sequence[Job], cluster: Cluster) -> None:
        """Assert that it is feasible: capacity, max shares, precedence, all work done once.

        The work is the estimated work; slots have speed 1 and are whole. The tolerance is
        relative, `TOLERANCE` of the work of a phase or of an instant, so that small phases are
        checked as strictly as large ones. O(P log P) for P pieces.
        """
        of_phase: dict[PhaseId, list[Piece]] = {}
        for piece in self.pieces:
            of_phase.setdefault(piece.phase, []).append(piece)
        of_kind: dict[str, list[Piece]] = {kind: [] for kind in cluster.capacity}
        for job in jobs:
            done: dict[str, float] = {}
            for phase in job.topological:
                pieces = of_phase.pop(PhaseId(job.id, phase.name), [])
                _check_phase(phase, pieces)
                assert all(p.start >= job.arrival for p in pieces), "nothing before arrival"
                # A phase without work is done when all phases that it waits for are done.
                ready = max((done[other] for other in phase.waits_for), default=job.arrival)
                for piece in pieces:
                    assert piece.start >= ready * (1 - TOLERANCE), "precedence"
                done[phase.name] = max([ready, *(p.end for p in pieces)])
                of_kind[cluster.slot_kind(phase.kind)] += pieces
        assert not of_phase, "only known phases are scheduled"
        for kind, capacity in cluster.capacity.items():
            _check_capacity(of_kind[kind], capacity)


def _check_phase(phase: Phase, pieces: Sequence[Piece]) -> None:
    """Check one phase: its pieces are valid, do not overlap, and do all of its work."""
    assert all(isinstance(p.slots, int) for p in pieces), "slots are whole"
    assert all(0 < p.slots <= phase.slots_most for p in pieces), "max shares"
    assert all(p.start < p.end < inf for p in pieces), "every piece has a length"
    ordered = sorted(pieces, key=lambda p: p.start)
    for one, other in pairwise(ordered):
        assert one.end <= other.start, "pieces of a phase do not overlap"
    work = phase.work_total()
    assert work is not None
    area = fsum((p.end - p.start) * p.slots for p in pieces)
    rounded = fsum(2 * ulp(p.end) * p.slots for p in pieces)
    assert abs(area - work) <= TOLERANCE * work + rounded, "all work is done once"


def _check_capacity(pieces: Sequence[Piece], capacity: int) -> None:
    # An end within rounding of a start frees its slots first. Moving it by at most half of its
    # piece keeps every piece in the check.
    changes = [(p.start, p.slots) for p in pieces] + [
        (p.end - min(TOLERANCE * p.end, (p.end - p.start) / 2), -p.slots) for p in pieces
    ]
    held = 0
    for _, change in sorted(changes):
        held += change
        assert held <= capacity, "the capacity is never exceeded"
