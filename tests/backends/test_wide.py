"""Tasks that occupy several slots, on every backend."""

from __future__ import annotations

from backends.test_backends import WORK, Stage, Trouble
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.insight.replay import replay_log


def jobs() -> list[Job]:
    """A job of wide tasks, and one of narrow ones."""
    return [
        Job("narrow", (Phase("map", Tasks(5, WORK)),)),
        Job("wide", (Phase("map", Tasks(3, WORK), slots=2),)),
    ]


def most_held(log: Log, widths: dict[str, int]) -> int:
    """The most slots that were held at once."""
    held = most = 0
    for turn in log.turns:
        ended = [e for e in turn.events if hasattr(e, "attempt")]
        held -= sum(widths[event.phase.job] for event in ended)
        held += sum(widths[d.phase.job] for d in turn.decisions if isinstance(d, Launch))
        most = max(most, held)
    return most


def test_wide_and_narrow_tasks_all_run(stage: Stage) -> None:
    """Each task runs once, on three slots of which no more than three are held."""
    play = stage(jobs(), slots=3)
    assert play.completed.keys() == {"narrow", "wide"}
    assert len(play.events(TaskFinished)) == 8
    assert most_held(play.log, {"narrow": 1, "wide": 2}) == 3
    assert replay_log(play.log).is_identical


def test_a_wide_task_that_dies_gives_all_of_its_slots_back(stage: Stage) -> None:
    """It loses its worker process once, and runs again in as many slots."""
    troubles = {("wide", "map", 0): Trouble(1, kills=True), ("wide", "map", 1): Trouble(1)}
    play = stage(jobs(), troubles, slots=2)
    assert play.completed.keys() == {"narrow", "wide"}
    assert most_held(play.log, {"narrow": 1, "wide": 2}) == 2


def test_a_wide_job_that_fails_frees_its_slots(stage: Stage) -> None:
    """Its other running task is stopped, and the narrow job gets all slots."""
    play = stage(jobs(), {("wide", "map", 0): Trouble(9)}, slots=4, attempts_max=1)
    assert play.failed.keys() == {"wide"}
    assert play.completed.keys() == {"narrow"}
