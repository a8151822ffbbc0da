"""Output of done tasks that is lost: what is pending again, and what waits again."""

from __future__ import annotations

import pytest

import slotwise
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core import codec
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.events import Event, JobArrived, OutputLost, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.retries import LOSSES_MAX
from slotwise.core.state import State

MAP, REDUCE = PhaseId("j", "map"), PhaseId("j", "reduce")


@pytest.fixture
def state() -> State:
    """Two maps are done, and one of two reduces runs."""
    made = State(Cluster((Host("h", {"task": 2}),)))
    reduces = Phase("reduce", Tasks(2, 1.0), after=frozenset({"map"}))
    made.apply(JobArrived(0.0, Job("j", (Phase("map", Tasks(2, (1.0, 3.0))), reduces))))
    made.apply(Reallocate({MAP: 2.0}, 10.0))
    for task in (0, 1):
        launch(made, MAP, task)
    for task, seconds in ((0, 2.0), (1, 6.0)):
        made.apply(TaskFinished(0.0, MAP, task, 1, seconds))
    launch(made, REDUCE, 0)
    made.check()
    return made


def launch(state: State, phase: PhaseId, task: int, attempt: int = 1) -> None:
    """Launch an attempt."""
    state.apply(Launch(phase, task, attempt, "h", Locality.NODE))


def ready(state: State) -> set[str]:
    """The names of the ready phases."""
    return {phase.id.phase for phase in state.ready("task")}


def test_lost_tasks_are_pending_again(state: State) -> None:
    """With the next number of attempt; the phase is ready again, and its estimate stays."""
    state.apply(OutputLost(0.0, MAP, (1,)))
    state.check()
    assert ready(state) == {"map"}
    (phase,) = state.ready("task")
    assert (phase.done, phase.pending, phase.next_task()) == (1, 1, (1, 2))
    assert phase.work_left(0.0) == pytest.approx(6.0), "tasks take twice their estimate"


def test_what_depends_on_it_waits_but_its_running_tasks_go_on(state: State) -> None:
    """They may have read all that they need."""
    state.apply(OutputLost(0.0, MAP, (0,)))
    state.apply(TaskFinished(0.0, REDUCE, 0, 1, 1.0))
    state.check()
    assert ready(state) == {"map"}
    launch(state, MAP, 0, attempt=2)
    state.apply(TaskFinished(0.0, MAP, 0, 2, 2.0))
    state.check()
    assert ready(state) == {"reduce"}


def test_a_running_task_that_misses_its_input_runs_again_later(state: State) -> None:
    """It fails, and waits with the others."""
    state.apply(OutputLost(0.0, MAP, (0,)))
    state.apply(TaskFailed(0.0, REDUCE, 0, 1, "input is missing", lost=True))
    state.check()
    assert ready(state) == {"map"}


def test_a_done_phase_that_is_undone_waits_for_lost_input() -> None:
    """The output of both phases is lost while the third one runs: the second waits again."""
    state = State(Cluster((Host("h", {"task": 1}),)))
    names = ("a", "b", "c")
    phases = (
        Phase(name, Tasks(1, 1.0), after=frozenset(names[:place]))
        for place, name in enumerate(names)
    )
    state.apply(JobArrived(0.0, Job("j", tuple(phases))))
    first, second, third = (PhaseId("j", name) for name in names)
    state.apply(Reallocate({first: 1.0}, 10.0))
    for phase in (first, second):
        launch(state, phase, 0)
        state.apply(TaskFinished(0.0, phase, 0, 1, 1.0))
    launch(state, third, 0)
    for phase in (first, second):
        state.apply(OutputLost(0.0, phase, (0,)))
    state.check()
    assert ready(state) == {"a"}
    state.apply(TaskFinished(0.0, third, 0, 1, 1.0))
    launch(state, first, 0, attempt=2)
    state.apply(TaskFinished(0.0, first, 0, 2, 1.0))
    assert ready(state) == {"b"}


def test_a_job_is_complete_when_its_lost_output_is_made_again(state: State) -> None:
    """Also if all that needed the output is done meanwhile."""
    launch(state, REDUCE, 1)
    state.apply(OutputLost(0.0, MAP, (0,)))
    for task in (0, 1):
        state.apply(TaskFinished(0.0, REDUCE, task, 1, 1.0))
    state.check()
    assert state.completed == {}
    launch(state, MAP, 0, attempt=2)
    state.apply(TaskFinished(3.0, MAP, 0, 2, 2.0))
    state.check()
    assert state.completed == {"j": 3.0}


def test_what_is_not_done_cannot_be_lost(state: State) -> None:
    """A repeated report changes nothing, nor does one of a job that is over."""
    state.apply(OutputLost(0.0, MAP, (0,)))
    state.apply(OutputLost(0.0, MAP, (0,)))
    state.apply(OutputLost(0.0, PhaseId("gone", "map"), (0,)))
    state.check()
    (phase,) = state.ready("task")
    assert (phase.done, phase.pending) == (1, 1)


def test_the_event_comes_back_from_json() -> None:
    """With its tasks as a tuple."""
    event = OutputLost(1.0, MAP, (0, 3))
    assert codec.decode(codec.encode(event)) == event


def test_a_simulated_loss_repeats_a_task() -> None:
    """A map of 2 s ends at 2 and is lost at 3; the reduce that began by then goes on."""
    job = Job(
        "j",
        (Phase("map", Tasks(2, 2.0)), Phase("reduce", Tasks(4, 2.0), after=frozenset({"map"}))),
    )

    def loss(event: TaskFinished) -> float | None:
        return 1.0 if event.task == 0 and event.attempt == 1 else None

    result = slotwise.simulate([job], "fair", slots=2, simulation=Simulation(loss=loss))
    ends = [
        (event.phase.phase, event.task, event.attempt, event.at)
        for turn in result.log.turns
        for event in turn.events
        if isinstance(event, TaskFinished)
    ]
    assert ends == [
        ("map", 0, 1, 2.0),
        ("map", 1, 1, 2.0),
        ("reduce", 0, 1, 4.0),
        ("reduce", 1, 1, 4.0),
        ("map", 0, 2, 6.0),
        ("reduce", 2, 1, 8.0),
        ("reduce", 3, 1, 8.0),
    ]
    assert slotwise.replay(result.log).is_identical
    assert result.bound <= result.metrics["value"] == 8.0


def test_a_task_that_loses_its_output_again_and_again_dooms_its_job(state: State) -> None:
    """After as many losses as it may lose slots; the reason has that of the last loss."""
    for attempt in range(1, LOSSES_MAX + 1):
        assert state.doomed == {}
        state.apply(OutputLost(0.0, MAP, (0,), f"disk {attempt} is gone"))
        state.check()
        launch(state, MAP, 0, attempt + 1)
        state.apply(TaskFinished(0.0, MAP, 0, attempt + 1, 1.0))
    assert state.doomed == {
        "j": "the output of map task 0 was lost; this task has lost its slot or its output 16"
        " times: disk 16 is gone"
    }


def test_a_task_that_lacks_input_is_not_to_blame(state: State) -> None:
    """It may miss its input more often than it may lose its slot."""
    for attempt in range(1, LOSSES_MAX + 2):
        lost = TaskFailed(0.0, REDUCE, 0, attempt, "no input", lost=True, lacks_input=True)
        state.apply(lost)
        launch(state, REDUCE, 0, attempt + 1)
    state.check()
    assert state.doomed == {}


@pytest.mark.parametrize(
    ("event", "key"),
    [
        (TaskFailed(1.0, REDUCE, 0, 1, "no input", lost=True, lacks_input=True), "lacks_input"),
        (OutputLost(1.0, MAP, (1,), "the disk is gone"), "reason"),
    ],
    ids=["lacks input", "reason"],
)
def test_what_is_rarely_said_is_left_out_of_the_log(event: Event, key: str) -> None:
    """A key is written only if it says something; without it an event reads as before."""
    said = codec.encode(event)
    assert codec.decode(said) == event
    plain = {name: value for name, value in said.items() if name != key}
    assert codec.encode(codec.decode(plain)) == plain
