"""Schedules: slots per phase as step functions of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, PhaseId

TOLERANCE = 1e-9
"""Relative tolerance of work done and instants met."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A phase holds so many slots in the half-open interval [start, end), in seconds."""

    phase: PhaseId
    start: float
    end: float
    slots: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A malleable schedule: pieces of one phase follow each other and never overlap."""

    pieces: tuple[Piece, ...]

    def completion(self) -> dict[str, float]:
        """When each job is done: the end of its last piece."""
        done: dict[str, float] = {}
        for piece in self.pieces:
            done[piece.phase.job] = max(done.get(piece.phase.job, 0.0), piece.end)
        return done

    def check(self, jobs: Sequence[Job], cluster: Cluster) -> None:
        """Assert that it is feasible: capacity, most shares, precedence, all work done once.

        Work is that of the estimates; slots have speed 1. O(P log P) for P pieces.
        """
        of_phase: dict[PhaseId, list[Piece]] = {}
        for piece in self.pieces:
            of_phase.setdefault(piece.phase, []).append(piece)
        for job in jobs:
            for phase in job.phases:
                pieces = of_phase.pop(PhaseId(job.id, phase.name), [])
                area = sum((p.end - p.start) * p.slots for p in pieces)
                work = phase.tasks.work_total()
                assert work is not None
                assert abs(area - work) <= TOLERANCE * max(1.0, work), "all work is done once"
                assert all(0 < p.slots <= phase.slots_most for p in pieces), "most shares"
                assert all(p.start >= job.arrival for p in pieces), "nothing before arrival"
                _check_apart(pieces)
        assert not of_phase, "only known phases are scheduled"
        ends = _phase_ends(self.pieces)
        for piece in self.pieces:
            job = next(j for j in jobs if j.id == piece.phase.job)
            for before in job.by_name[piece.phase.phase].after:
                end = ends.get(PhaseId(job.id, before), 0.0)
                assert piece.start >= end - TOLERANCE * max(1.0, end), "precedence"
        kinds = {
            PhaseId(job.id, phase.name): cluster.slot_kind(phase.kind)
            for job in jobs
            for phase in job.phases
        }
        for kind, capacity in cluster.capacity.items():
            _check_capacity([p for p in self.pieces if kinds[p.phase] == kind], capacity)


def _check_apart(pieces: Sequence[Piece]) -> None:
    ordered = sorted(pieces, key=lambda p: p.start)
    for one, other in pairwise(ordered):
        assert one.end <= other.start, "pieces of a phase do not overlap"
    assert all(p.start < p.end for p in pieces), "every piece has a length"


def _check_capacity(pieces: Sequence[Piece], capacity: int) -> None:
    # Ends within rounding of a start free their slots first.
    changes = [(p.start, p.slots) for p in pieces] + [
        (p.end - TOLERANCE * max(1.0, p.end), -p.slots) for p in pieces
    ]
    held = 0
    for _, change in sorted(changes):
        held += change
        assert held <= capacity, "the capacity is never exceeded"


def _phase_ends(pieces: Iterable[Piece]) -> Mapping[PhaseId, float]:
    ends: dict[PhaseId, float] = {}
    for piece in pieces:
        ends[piece.phase] = max(ends.get(piece.phase, 0.0), piece.end)
    return ends
