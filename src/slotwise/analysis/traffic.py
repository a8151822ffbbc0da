"""Traffic: the bytes that tasks read from other hosts, in total and over time."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.analysis.attempts import Attempt, AttemptTracker
from slotwise.analysis.timeline import StepFunction
from slotwise.model.decision import Launch, Locality
from slotwise.model.job import Job
from slotwise.record.log import Log

ROUNDING = 1e-9
"""Reading times below this part of the instant are taken for rounding errors."""


def bytes_read(job: Job, attempt: Attempt | Launch) -> int:
    """The bytes that this attempt reads from another host: its whole block, or 0.

    This depends only on the launch: an attempt that is killed while it reads counts in full.
    """
    if attempt.locality is Locality.NODE:
        return 0
    blocks = job.by_name[attempt.phase.phase].tasks.blocks
    return blocks[attempt.task].size_bytes if blocks else 0


@dataclass(frozen=True, slots=True)
class TrafficSteps:
    """Bytes a second over time, from other hosts of the same rack and from other racks."""

    rack: StepFunction
    core: StepFunction


def traffic_of(log: Log) -> TrafficSteps:
    """The traffic of a run over time. O(n log n) for n entries of the log.

    An attempt reads before it computes: from its launch until its computing time before its
    end. The rate is taken as constant. If the reading time is unknown (the attempt did not
    succeed, or reading took no separate time), it is the whole run of the attempt. The areas
    are the bytes of the metric `traffic_bytes`, except for attempts of zero length.
    """
    changes: dict[Locality, list[tuple[float, float]]] = {Locality.RACK: [], Locality.ANY: []}

    def read(attempt: Attempt) -> None:
        size = bytes_read(follower.jobs[attempt.phase.job].job, attempt)
        until = _read_until(attempt)
        if size and until > attempt.start:
            rate = size / (until - attempt.start)
            changes[attempt.locality] += [(attempt.start, rate), (until, -rate)]

    follower = AttemptTracker(read, is_brief=True)
    for turn in log.turns:
        follower(turn.now, turn.events, turn.decisions)
    for attempt in follower.unfinished():
        read(attempt)
    rack, core = (
        StepFunction.of_changes(changes[level]) for level in (Locality.RACK, Locality.ANY)
    )
    return TrafficSteps(rack, core)


def _read_until(attempt: Attempt) -> float:
    if attempt.ending != "done":
        return attempt.end
    begins = attempt.end - attempt.seconds
    took_time = begins - attempt.start > ROUNDING * attempt.end
    return begins if took_time else attempt.end
