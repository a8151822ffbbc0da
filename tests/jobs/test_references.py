"""What was received returns as a reference; who does not know it makes it by value."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import threading
from typing import Any

import pytest

from jobs.other_process import passed_on, shown_by, value_from
from slotwise.jobs import pickling
from slotwise.jobs.pickling import pickled_by_value


def model() -> type[Any]:
    """A new class, which other processes cannot import."""

    class Model:
        best = 0

        def __init__(self, x: int = 0) -> None:
            self.x = x

        def owner(self) -> type[Any]:
            return Model

    return Model


def test_a_class_that_was_sent_returns_as_itself_and_is_not_changed() -> None:
    """Even if the other process has changed its own copy."""
    kind = model()
    returned = value_from("given[0].best = 7; value = given[0](3)", kind)
    kind.best = 5
    found = pickle.loads(returned)
    assert type(found) is kind
    assert (found.x, kind.best, found.owner()) == (3, 5, kind)


def test_a_reference_does_not_send_what_it_refers_to_again() -> None:
    """The pickle by value of a class that was received is made once."""
    code = "value = [len(pickled_by_value(given[0](n))) for n in range(3)]"
    sizes = pickle.loads(value_from(f"{code} + [len(pickled_by_value(given[0]))]", model()))
    assert len(set(sizes[:3])) == 1


def test_an_instance_of_a_class_that_was_defined_again_keeps_its_class() -> None:
    """As when a cell of a notebook is run again between a call and its result."""
    first = second = model()
    returned = value_from("value = given[0]()", first)
    second = model()
    assert type(pickle.loads(returned)) is first is not second


def test_an_instance_of_a_class_that_is_gone_is_made_by_value() -> None:
    """Nothing else can tell that its class is another one."""
    kind = model()
    returned = value_from("value = given[0](4)", kind)
    del kind
    gc.collect()
    assert pickle.loads(returned).x == 4


def test_a_process_that_knows_nothing_of_a_class_makes_it_by_value() -> None:
    """The result of a call in one process is the argument of a call in another one."""
    kind = model()
    returned = value_from("value = [given[0](4), given[0].owner]", kind)
    further = passed_on("assert given[0][0].x == 4; value = given[0]", returned)
    assert type(pickle.loads(further)[0]) is kind
    assert pickle.loads(further)[1] is kind.owner


def test_what_a_reference_carries_does_not_change_what_is_known() -> None:
    """It is as old as the reference; only who defined a class may send it anew."""
    kind = model()
    returned = value_from("value = given[0]()", kind)
    kind.best = 3
    both = [pickled_by_value(kind), returned]
    shows = "value = given[0].best, type(given[1]) is given[0]"
    assert pickle.loads(passed_on(shows, *both)) == (3, True)


def test_who_defined_a_class_may_send_it_anew() -> None:
    """Workers see what the calling program has changed."""
    kind = model()
    sent = [pickled_by_value(kind)]
    kind.best = 3
    sent.append(pickled_by_value(kind))
    shows = "value = given[0] is given[1], given[0].best"
    assert pickle.loads(passed_on(shows, *sent)) == (True, 3)


def test_who_has_workers_sends_them_what_it_received_as_it_is_now() -> None:
    """As a function with a session of its own does, which changes a class that it was given."""
    kind = model()
    code = "given[0].best = {}\nsent.append(sent_by_value(given[0]))\n"
    begin = "from slotwise.jobs.pickling import sent_by_value\nsent = []\n"
    sent = pickle.loads(
        value_from(f"{begin}{code.format(3)}{code.format(4)}value = sent, given[0]", kind)
    )
    assert sent[1] is kind
    assert (pickle.loads(sent[0][0]), kind.best) == (kind, 0)
    assert pickle.loads(passed_on("value = given[1].best", *sent[0])) == 4


def test_a_class_of_another_process_comes_by_value_and_returns_as_a_reference() -> None:
    """It was defined there."""
    defined = "class Other:\n    def __init__(self):\n        self.x = 8\n"
    found = pickle.loads(value_from(f"{defined}value = Other()"))
    assert found.x == 8
    assert not pickling.known(type(found)).is_own  # type: ignore[union-attr]
    assert shown_by("value = given[0].x", found) == "8"


RUN = """
import dataclasses
@dataclasses.dataclass(slots=True)
class Point:
    x: int
value = [Point, pickled_by_value(Point(2))]
"""


def test_what_an_earlier_run_has_stored_is_of_the_class_of_this_run() -> None:
    """The one with the same name in the same module, as with pickle."""
    earlier, later = (value_from(RUN) for _ in range(2))
    stored = passed_on("value = given[0][0](2)", earlier)
    shows = "value = type(given[1]) is given[0][0], given[1].x"
    assert pickle.loads(passed_on(shows, later, stored)) == (True, 2)
    assert pickle.loads(passed_on("value = given[0].x", stored)) == 2


def test_a_class_that_cannot_be_sent_by_value_is_refused_where_it_is_not_known() -> None:
    """It still returns to who defined it."""
    kind = model()
    returned = value_from("given[0].file = open('/dev/null', 'w'); value = given[0](2)", kind)
    assert type(pickle.loads(returned)) is kind
    del kind
    gc.collect()
    with pytest.raises(pickle.UnpicklingError, match=r"Model was defined in another process"):
        pickle.loads(returned)


def test_things_are_not_kept_alive() -> None:
    """The tables hold what is alive and no more."""
    gc.collect()
    before = len(pickling._by_thing), len(pickling._by_identity)
    for _ in range(20):
        kind = model()
        pickle.loads(pickled_by_value(kind))
        pickle.loads(pickled_by_value(kind().owner))
    del kind
    gc.collect()
    assert (len(pickling._by_thing), len(pickling._by_identity)) == before


def test_threads_that_send_and_load_a_class_at_once_agree() -> None:
    """All get the same class back."""
    kind = model()
    returned = value_from("value = given[0]()", kind)
    found: list[Any] = []

    def work() -> None:
        for _ in range(50):
            found.extend((type(pickle.loads(returned)), pickle.loads(pickled_by_value(kind))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {kind}
    assert len(found) == 400


@dataclasses.dataclass
class Importable:
    """Other processes import it."""

    x: int


def test_what_can_be_imported_is_sent_by_name() -> None:
    """It has no identity, and carries no code."""
    assert b"_made" not in pickled_by_value(Importable(3))
    assert pickling.known(Importable) is None


def test_an_object_that_pickle_sends_by_name_is_one_in_each_process() -> None:
    """Though the name leads nowhere in other processes."""
    code = """
class Only:
    def __reduce__(self):
        return "ONLY"
ONLY = Only()
first, second = (pickle.loads(pickled_by_value([ONLY])) for _ in range(2))
value = ONLY, pickled_by_value(ONLY), first[0] is second[0] is ONLY
"""
    only, again, is_one = pickle.loads(value_from(code))
    assert is_one
    assert pickle.loads(again) is only


def test_a_function_is_made_again_with_its_present_globals() -> None:
    """Each call gets the values at that time; a recursive function refers to itself."""
    code = """
step = 1
def count(n):
    return n and step + count(n - 1)
sent = [pickled_by_value(count)]
step = 2
value = [*sent, pickled_by_value(count)]
"""
    sent = pickle.loads(value_from(code))
    assert [pickle.loads(one)(3) for one in sent] == [3, 6]
