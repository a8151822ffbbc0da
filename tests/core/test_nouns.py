"""The nouns refuse what cannot be, by place, value and remedy, and answer simple questions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError, MissingExtraError, SlotwiseError, suggestion
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool

ONE = Tasks(1, 1.0)


def phase(name: str, *after: str) -> Phase:
    """A phase of one task."""
    return Phase(name, ONE, after=frozenset(after))


def owing(**rest: object) -> Job:
    """A job of one phase that owes something."""
    return Job("j", (phase("p"),), **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Host("h", {"task": -1}), ["'h'", "-1", ">= 0"]),
        (lambda: Host("h", {"task": 1}, speed=0), ["'h'", "speed", "0", "> 0"]),
        (lambda: Host("h", {"task": 1}, speed=float("inf")), ["'h'", "speed", "inf"]),
        (lambda: Cluster((Host("h", {"task": 1}),) * 2), ["'h'", "rename"]),
        (lambda: Cluster((Host("h", {"task": 0}),)), ["no slots", "at least 1"]),
        (lambda: Tasks(0), ["at least 1 task", "0"]),
        (lambda: Tasks(2, (1.0,)), ["1 values", "2 tasks"]),
        (lambda: Tasks(2, -1.0), ["from 0 to", "-1.0"]),
        (lambda: Tasks(1, float("nan")), ["from 0 to", "nan"]),
        (lambda: Tasks(2, 1.0, (Block(frozenset("h")),)), ["1 blocks", "2 tasks"]),
        (lambda: Phase("p", ONE, slots_min=-1), ["'p'", "slots_min", "-1"]),
        (lambda: Phase("p", ONE, slots_max=0), ["'p'", "slots_max", "0", "1"]),
        (lambda: Phase("p", ONE, slots_min=3, slots_max=2), ["'p'", "slots_max", "2", "3"]),
        (lambda: Job("j", ()), ["'j'", "no phases"]),
        (lambda: Job("j", (phase("p"),), arrival=-1), ["'j'", "arrival", "-1"]),
        (lambda: Job("j", (phase("p"),), weight=0), ["'j'", "weight", "0"]),
        (lambda: owing(deadline=-1.0), ["'j'", "deadline", "-1.0", ">= 0"]),
        (lambda: owing(deadline=float("nan")), ["'j'", "deadline", "nan", ">= 0"]),
        (lambda: owing(deadline=float("inf")), ["'j'", "deadline", "inf", ">= 0"]),
        (lambda: owing(steps=[5.0]), ["'j'", "5.0", "not a pair", "(seconds, cost)"]),
        (lambda: owing(steps=[(5.0,)]), ["'j'", "(5.0,)", "not a pair"]),
        (lambda: owing(steps=[(5.0, float("nan"))]), ["'j'", "(5.0, nan)", ">= 0"]),
        (lambda: owing(steps=[(float("inf"), 1.0)]), ["'j'", "(inf, 1.0)", ">= 0"]),
        (lambda: owing(steps=[(-1.0, 1.0)]), ["'j'", "(-1.0, 1.0)", ">= 0"]),
        (lambda: owing(steps=[(1.0, -1.0)]), ["'j'", "(1.0, -1.0)", ">= 0"]),
        (lambda: owing(steps=[(1, 1), (1, 2)]), ["'j'", "(1, 2) follows (1, 1)", "increase"]),
        (lambda: owing(steps=[(1, 1), (2, 1)]), ["'j'", "(2, 1) follows (1, 1)", "increase"]),
        (lambda: Job("j", (phase("p"), phase("p"))), ["'j'", "'p'", "rename"]),
        (lambda: Job("j", (phase("p", "q"),)), ["'j'", "'p'", "'q'", "known: p"]),
        (lambda: Job("j", (phase("p", "q"), phase("q", "p"))), ["'j'", "p, q", "circle"]),
        (lambda: Pool("a", weight=-1), ["'a'", "weight", "-1"]),
        (
            lambda: Pool("a", slots_min={"map": 3}, slots_max={"map": 2}),
            ["'a'", "3", "map", "2"],
        ),
    ],
)
def test_invalid_values_are_refused(make: Callable[[], object], words: list[str]) -> None:
    """One message says where, what and how it would be right."""
    with pytest.raises(InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_phases_come_after_their_predecessors() -> None:
    """A diamond in any order of writing is ordered from its top to its end."""
    job = Job("j", (phase("d", "b", "c"), phase("b", "a"), phase("c", "a"), phase("a")))
    names = [one.name for one in job.topological]
    assert names[0] == "a"
    assert names[-1] == "d"
    assert sorted(names) == ["a", "b", "c", "d"]


def test_work_adds_up_where_all_of_it_is_known() -> None:
    """Equal tasks multiply, others add up; one unknown phase makes the job's work unknown."""
    even, related_machines = Phase("a", Tasks(3, 2.0)), Phase("b", Tasks(2, (1.0, 4.0)))
    assert even.tasks.work_total() == 6.0
    assert related_machines.tasks.work_total() == 5.0
    assert related_machines.tasks.work_of(1) == 4.0
    assert Job("j", (even, related_machines)).work == 11.0
    assert Job("j", (even, Phase("c", Tasks(1)))).work is None


def test_the_max_share_is_cut_to_the_number_of_tasks() -> None:
    """Two tasks never hold more than two slots."""
    assert Phase("p", Tasks(2)).slots_most == 2
    assert Phase("p", Tasks(2), slots_max=9).slots_most == 2
    assert Phase("p", Tasks(9), slots_max=2).slots_most == 2


def test_a_kind_uses_its_own_slots_or_plain_ones() -> None:
    """Maps have their own slots, sorts use plain ones; without plain ones they are refused."""
    hosts = (Host("h1", {"map": 2, "task": 1}), Host("h2", {"map": 3, "gpu": 0}))
    cluster = Cluster(hosts)
    assert cluster.capacity == {"map": 5, "task": 1}
    assert cluster.slot_kind("map") == "map"
    assert cluster.slot_kind("sort") == cluster.slot_kind("gpu") == "task"
    with pytest.raises(InputError, match=r"'sort'.*kind map"):
        Cluster((hosts[1],)).slot_kind("sort")


def test_a_phase_id_reads_as_job_and_phase() -> None:
    """In messages a phase is job/phase."""
    assert str(PhaseId("q1", "map")) == "q1/map"


def test_errors_of_users_are_one_tree() -> None:
    """Catching SlotwiseError catches all; a missing part names the command that brings it."""
    assert issubclass(InputError, SlotwiseError)
    error = MissingExtraError("a report", "plots")
    assert isinstance(error, SlotwiseError)
    assert str(error) == (
        "a report needs an optional part: pip install 'slotwise[plots]', or scripts/setup in a"
        " checkout"
    )


@pytest.mark.parametrize(
    ("wrong", "known", "remedy"),
    [
        ("fairr", ["fifo", "fair"], "did you mean 'fair'?"),
        ("Flex", ["fair", "flex"], "did you mean 'flex'?"),
        ("least", ["least_after", "fair_after"], "did you mean 'least_after'?"),
        ("attempts", ["arrival", "steps"], "known: arrival, steps"),
        ("lsa", ["fair", "las"], "did you mean 'las'?"),
        ("flo", ["flowflex", "flowflex-fast"], "known: flowflex, flowflex-fast"),
        ([], ["fair"], "known: fair"),
        ("x", [], "known: none"),
    ],
)
def test_a_similar_name_is_suggested(wrong: object, known: list[str], remedy: str) -> None:
    """Or a longer one, if only one begins so; a name that is not similar is no suggestion."""
    assert suggestion(wrong, known) == remedy


@pytest.mark.parametrize(
    "make",
    [
        Pool,
        lambda name: Host(name, {"task": 1}),
        lambda name: Host("h", {"task": 1}, rack=name),
        lambda name: Job(name, (phase("p"),)),
        lambda name: owing(pool=name),
        lambda name: Phase("p", ONE, kind=name),
        lambda name: Pool("p", slots_max={name: 1}),
    ],
)
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("", "expected a string that is not empty"),
        ("a" * 201, "give it at most 200 characters"),
        *((name, "remove the control characters") for name in ("a\nb", "\x1b[2J", "\x85")),
        *((name, "characters that are not Unicode") for name in ("\ud800", "\ufffe", "\ufdd0")),
    ],
)
def test_names_that_no_file_can_have(
    make: Callable[[str], object], name: str, remedy: str
) -> None:
    """They are refused in Python, too: terminals obey some, and XML cannot hold others."""
    with pytest.raises(InputError, match=remedy) as refused:
        make(name)
    assert str(refused.value).isprintable()


def test_names_of_any_language_are_accepted() -> None:
    """Up to the greatest length."""
    assert [Pool(name).name for name in ("Ünï 统计 \u2028", "a" * 200)] == [
        "Ünï 统计 \u2028",
        "a" * 200,
    ]
