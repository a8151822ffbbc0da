"""The events that follow from what happens to keys, without Dask."""

from __future__ import annotations

from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import (
    Event,
    JobArrived,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.job import PhaseId
from slotwise.dask.computations import Computations, End, Key, KeyInfo, Standing, Submitter


class Keys:
    """Keys named by prefix and number, "sum-2", whose standing the test sets."""

    def __init__(self, **standing: Standing) -> None:
        self.standing: dict[Key, Standing] = {
            name.replace("_", "-"): one for name, one in standing.items()
        }
        self.slots = 10
        self.found = Computations(self.describe, lambda key: self.standing.get(key, "unneeded"))

    @staticmethod
    def describe(key: Key) -> KeyInfo:
        """Higher numbers have the better priority; sums take 2 s."""
        prefix, number = str(key).split("-")
        return KeyInfo(prefix, 2.0 if prefix == "sum" else None, (-float(number),))

    def graph(self, client: str = "c") -> None:
        """All keys arrive as one graph, and are wanted."""
        self.found.graph(Submitter(client, "p"), list(self.standing))
        for key in self.standing:
            self.found.wanted(key)

    def launch(self, phase: str, number: int, attempt: int = 1, job: str = "c-1") -> Key:
        """A task begins to run."""
        launch = Launch(PhaseId(job, phase), number, attempt, "dask", Locality.NODE)
        key = self.found.launched(launch, 0.0)
        self.standing[key] = "running"
        return key

    def events(self) -> list[Event]:
        """What has happened."""
        return self.found.events(1.0, self.slots)


def test_a_graph_is_a_job_of_its_prefixes() -> None:
    """Tasks are numbered by priority; those that are runnable are reported."""
    keys = Keys(inc_1="runnable", inc_2="runnable", sum_3="blocked")
    keys.graph()
    arrived, runnable = keys.events()
    assert isinstance(arrived, JobArrived)
    phases = {phase.name: phase for phase in arrived.job.phases}
    assert (phases["inc"].tasks.count, phases["inc"].tasks.work) == (2, None)
    assert (phases["sum"].tasks.count, phases["sum"].tasks.work) == (1, 2.0)
    assert all(phase.gated for phase in phases.values())
    assert runnable == TasksRunnable(1.0, PhaseId("c-1", "inc"), (0, 1))
    assert keys.launch("inc", 0) == "inc-2"


def test_keys_that_are_there_already_are_not_tasks() -> None:
    """Only keys that are wanted are; a graph without any is no job."""
    keys = Keys(inc_1="done", inc_2="runnable")
    keys.found.graph(Submitter("c"), ["inc-1", "inc-2"])
    keys.found.wanted("inc-2")
    (arrived, _) = keys.events()
    assert isinstance(arrived, JobArrived)
    assert arrived.job.phases[0].tasks.count == 1
    keys.found.graph(Submitter("c"), ["inc-1"])
    assert keys.events() == []


def test_ends_become_events_and_the_job_is_forgotten() -> None:
    """One succeeds, one fails for good, one is killed and not needed any more."""
    keys = Keys(inc_1="runnable", inc_2="runnable", inc_3="runnable")
    keys.graph()
    keys.events()
    for number in range(3):
        keys.launch("inc", number)
    keys.standing.update({"inc-3": "done", "inc-2": "unneeded", "inc-1": "unneeded"})
    keys.found.ended(End("inc-3", 0.5))
    keys.found.ended(End("inc-2", None, "broke"))
    keys.found.ended(End("inc-1", None))
    phase = PhaseId("c-1", "inc")
    assert keys.events() == [
        TaskFinished(1.0, phase, 0, 1, 0.5),
        TaskFailed(1.0, phase, 1, 1, "broke"),
        TaskKilled(1.0, phase, 2, 1),
        TasksDropped(1.0, phase, (1, 2)),
    ]
    assert not keys.found.alive
    assert not keys.found.tasks
    assert keys.found.running == 0


def test_an_attempt_that_ends_may_run_again() -> None:
    """Its worker was lost: the task is blocked, then runnable."""
    keys = Keys(inc_1="runnable")
    keys.graph()
    keys.events()
    keys.launch("inc", 0)
    keys.standing["inc-1"] = "runnable"
    keys.found.ended(End("inc-1", None))
    phase = PhaseId("c-1", "inc")
    assert keys.events() == [
        TaskKilled(1.0, phase, 0, 1),
        TasksRunnable(1.0, phase, (0,)),
    ]
    assert keys.launch("inc", 0, attempt=2) == "inc-1"


def test_a_lost_result_is_wanted_again() -> None:
    """Its job is not over: the task is done again."""
    keys = Keys(inc_1="runnable", inc_2="blocked")
    keys.graph()
    keys.events()
    keys.launch("inc", 1)
    keys.standing["inc-1"] = "done"
    keys.found.ended(End("inc-1", 1.0))
    keys.events()
    keys.standing["inc-1"] = "runnable"
    keys.found.wanted("inc-1")
    phase = PhaseId("c-1", "inc")
    assert keys.events() == [
        OutputLost(1.0, phase, (1,)),
        TasksRunnable(1.0, phase, (1,)),
    ]


def test_a_result_of_a_job_that_is_over_is_a_job_of_its_own() -> None:
    """Also if the job ends in the same turn in which its result is wanted again."""
    keys = Keys(inc_1="runnable")
    keys.graph()
    keys.events()
    keys.launch("inc", 0)
    keys.found.ended(End("inc-1", 1.0))
    keys.standing["inc-1"] = "runnable"
    keys.found.wanted("inc-1")
    finished, arrived, runnable = keys.events()
    assert isinstance(finished, TaskFinished)
    assert isinstance(arrived, JobArrived)
    assert (arrived.job.id, arrived.job.pool) == ("c-2", "p")
    assert runnable == TasksRunnable(1.0, PhaseId("c-2", "inc"), (0,))


def test_runnable_tasks_may_be_blocked_or_dropped() -> None:
    """Input of one is lost, the other is cancelled."""
    keys = Keys(inc_1="runnable", inc_2="runnable")
    keys.graph()
    keys.events()
    keys.standing["inc-1"], keys.standing["inc-2"] = "blocked", "unneeded"
    keys.found.changed("inc-1")
    keys.found.changed("inc-2")
    phase = PhaseId("c-1", "inc")
    assert keys.events() == [TasksBlocked(1.0, phase, (1,)), TasksDropped(1.0, phase, (0,))]


def test_a_key_is_a_task_of_the_first_graph_that_has_it() -> None:
    """The second graph has one task of its own."""
    keys = Keys(inc_1="runnable")
    keys.graph("one")
    keys.events()
    keys.standing["inc-2"] = "runnable"
    keys.found.graph(Submitter("two"), ["inc-1", "inc-2"])
    keys.found.wanted("inc-2")
    arrived, _ = keys.events()
    assert isinstance(arrived, JobArrived)
    assert arrived.job.phases[0].tasks.count == 1
    assert keys.found.tasks["inc-1"].phase.job == "one-1"


def test_tasks_are_offered_in_the_order_of_dask() -> None:
    """Of four tasks of two phases, the two with the best priorities; then the others."""
    keys = Keys(inc_1="runnable", sum_2="runnable", inc_3="runnable", sum_4="blocked")
    keys.slots = 2
    keys.graph()
    inc, total = PhaseId("c-1", "inc"), PhaseId("c-1", "sum")
    assert keys.events()[1:] == [
        TasksRunnable(1.0, inc, (0,)),
        TasksRunnable(1.0, total, (1,)),
    ]
    assert keys.found.deferred_of("c-1") == 1
    keys.launch("inc", 0)
    keys.standing["sum-4"] = "runnable"
    keys.found.changed("sum-4")
    assert keys.events() == [
        TasksBlocked(1.0, total, (1,)),
        TasksRunnable(1.0, total, (0,)),
    ]
    keys.standing["inc-3"] = "done"
    keys.found.ended(End("inc-3", 0.5))
    assert keys.events() == [
        TaskFinished(1.0, inc, 0, 1, 0.5),
        TasksRunnable(1.0, total, (1,)),
    ]


def test_more_slots_are_offered_to_all_jobs() -> None:
    """Workers join, or other tasks leave them."""
    keys = Keys(inc_1="runnable", inc_2="runnable")
    keys.slots = 0
    keys.graph()
    assert len(keys.events()) == 1
    keys.slots = 1
    assert keys.events() == [TasksRunnable(1.0, PhaseId("c-1", "inc"), (0,))]


def test_a_task_that_comes_later_may_be_blocked_or_dropped() -> None:
    """That it is blocked is no news for slotwise."""
    keys = Keys(inc_1="runnable", inc_2="runnable", inc_3="runnable")
    keys.slots = 1
    keys.graph()
    keys.events()
    keys.standing["inc-1"], keys.standing["inc-2"] = "blocked", "unneeded"
    keys.found.changed("inc-1")
    keys.found.changed("inc-2")
    assert keys.events() == [TasksDropped(1.0, PhaseId("c-1", "inc"), (1,))]
    assert keys.found.deferred_of("c-1") == 0


def test_a_task_that_certain_workers_have_room_for_is_offered_at_once() -> None:
    """Though it comes last; it may become bound, blocked, and free of restrictions again."""
    keys = Keys(inc_1="bound", inc_2="runnable", inc_3="runnable")
    keys.slots = 1
    keys.graph()
    phase = PhaseId("c-1", "inc")
    assert keys.events()[1:] == [
        TasksRunnable(1.0, phase, (2,)),
        TasksRunnable(1.0, phase, (0,)),
    ]
    keys.standing.update({"inc-1": "blocked", "inc-2": "bound"})
    keys.found.changed("inc-1")
    keys.found.changed("inc-2")
    assert keys.events() == [
        TasksBlocked(1.0, phase, (2,)),
        TasksRunnable(1.0, phase, (1,)),
    ]
    keys.standing.update({"inc-1": "runnable", "inc-2": "blocked"})
    keys.found.changed("inc-1")
    keys.found.changed("inc-2")
    assert keys.events() == [TasksBlocked(1.0, phase, (1,))]
    assert keys.found.deferred_of("c-1") == 1
