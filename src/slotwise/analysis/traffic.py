"""Traffic: what tasks read from other hosts, in bytes and over time."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.analysis.attempts import Attempt, Follower
from slotwise.analysis.timeline import Steps
from slotwise.model.decision import Launch, Locality
from slotwise.model.job import Job
from slotwise.record.log import Log

ROUNDING = 1e-9
"""A part of an instant that is too short for a time to read in."""


def bytes_read(job: Job, attempt: Attempt | Launch) -> int:
    """What this attempt of the job reads from another host: its whole block, or nothing.

    Where an attempt runs was decided with its launch, and so was this: an attempt that is
    killed on the way counts in full.
    """
    if attempt.locality is Locality.NODE:
        return 0
    blocks = job.by_name[attempt.phase.phase].tasks.blocks
    return blocks[attempt.task].size_bytes if blocks else 0


@dataclass(frozen=True, slots=True)
class TrafficSteps:
    """Bytes a second over time: from other hosts of the same rack, and from other racks."""

    rack: Steps
    core: Steps


def traffic_of(log: Log) -> TrafficSteps:
    """The traffic of a run over time. O(n log n) for n entries of the log.

    An attempt reads before it computes: from its launch until it has computed for as long as
    it says, backwards from its end. It is drawn as if it read evenly. Where nothing tells when
    it read (it did not end well, or reading took no time of its own), it reads as long as it
    runs. The areas are the bytes of the metric `traffic_bytes`, but for attempts that took no
    time at all.
    """
    attempts: list[Attempt] = []
    follower = Follower(attempts.append)
    for turn in log.turns:
        follower(turn.now, turn.events, turn.decisions)
    attempts += follower.unfinished()
    changes: dict[Locality, list[tuple[float, float]]] = {Locality.RACK: [], Locality.ANY: []}
    for attempt in attempts:
        size = bytes_read(follower.jobs[attempt.phase.job].job, attempt)
        until = _read_until(attempt)
        if size and until > attempt.start:
            rate = size / (until - attempt.start)
            changes[attempt.locality] += [(attempt.start, rate), (until, -rate)]
    rack, core = (Steps.of_changes(changes[level]) for level in (Locality.RACK, Locality.ANY))
    return TrafficSteps(rack, core)


def _read_until(attempt: Attempt) -> float:
    if attempt.ending != "done":
        return attempt.end
    begins = attempt.end - attempt.seconds
    took_time = begins - attempt.start > ROUNDING * attempt.end
    return begins if took_time else attempt.end
