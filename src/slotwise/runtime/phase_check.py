"""Whether the counters of a phase agree with its tasks; for tests."""

from __future__ import annotations

from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.task_homes import BLOCKED, DONE, DROPPED, PENDING, RUNNING


def check_phase(phase: PhaseState) -> None:
    """Assert that the counters of a phase agree with its tasks. O(tasks)."""
    status = phase._status
    assert phase.pending == status.count(PENDING)
    assert phase.running == status.count(RUNNING) * phase.width
    assert status.count(RUNNING) == len(phase.launches)
    assert phase.done == status.count(DONE)
    assert phase.blocked == status.count(BLOCKED)
    assert phase.dropped == status.count(DROPPED)
    assert phase.stopping.keys() <= phase.launches.keys()
    assert 0 <= phase.slots_on_lost_hosts <= phase.running
    assert phase.running <= phase.max_share, "a phase never exceeds its max share"
    waits = phase.waits_for and not phase.lacks_input
    assert not phase.running or not waits, "no task runs before its phase is ready"
    if phase.is_gang and not phase.is_broken:
        attempts = {phase.attempt_of(task) for task in range(len(status))}
        assert len(attempts) == 1, "a gang runs as a whole"
        assert not phase.done or not phase.pending, "a gang is done as a whole"
    assert not phase.is_broken or (phase.is_gang and phase.running and not phase.done)
    if phase.done and not phase.launches:
        again = phase.work.estimate(0.0, phase.done, {}, phase.early)
        assert phase.work.estimate_idle(phase.done) == again, "what was kept still holds"
    assert phase.waits_for or not phase.lacks_input, "what lacks input waits for it"
