"""Tasks for certain workers are offered as many slots as these have room for."""

from __future__ import annotations

from slotwise.dask.holding import Places, Restricted

ONE, BOTH = frozenset({"w1"}), frozenset({"w1", "w2"})


def never(job: str) -> bool:
    """No job is held by its pools."""
    return False


def test_no_more_are_offered_than_there_is_room() -> None:
    """Two of three tasks for a worker with room for two; the third one is parked."""
    tasks = Restricted()
    assert [tasks.offer(key, ONE, Places({"w1": 2}), "j", never) for key in "abc"] == [
        True,
        True,
        False,
    ]
    assert [tasks.is_parked(key) for key in "abc"] == [False, False, True]


def test_parked_tasks_are_offered_when_others_leave() -> None:
    """Those that run are forgotten; as many others as there is room for come next."""
    tasks = Restricted()
    for key in "abcd":
        tasks.offer(key, ONE, Places({"w1": 1}), "j", never)
    tasks.forget("a")
    assert tasks.changed(Places({"w1": 2}), never) == ["b", "c"]
    assert tasks.changed(Places({"w2": 2}), never) == []


def test_offers_end_when_the_room_is_gone() -> None:
    """Another task took the place on the worker: the offered one is looked at again."""
    tasks = Restricted()
    tasks.offer("a", ONE, Places({"w1": 1}), "j", never)
    tasks.offer("b", BOTH, Places({"w1": 1}), "j", never)
    assert tasks.changed(Places({"w2": 1}), never) == ["a"]
    assert not tasks.offer("a", ONE, Places({"w2": 1}), "j", never)
    assert tasks.is_parked("a")
    assert tasks.changed(Places({"w2": 1}), never) == []


def test_nothing_is_left_of_forgotten_tasks() -> None:
    """Whether they were offered or parked."""
    tasks = Restricted()
    for key in "ab":
        tasks.offer(key, ONE, Places({"w1": 1}), "j", never)
    assert tasks.take_all() == ["a", "b"]
    for key in "ab":
        tasks.offer(key, ONE, Places({"w1": 1}), "j", never)
        tasks.forget(key)
        tasks.forget(key)
    assert len(tasks) == 0
    assert tasks.changed(Places({"w1": 5}), never) == []


def test_a_job_that_its_pools_hold_leaves_the_room_to_others() -> None:
    """Its offered task is looked at again and parked; then that of the other job comes."""
    tasks = Restricted()
    assert tasks.offer("a", ONE, Places({"w1": 1}), "full", never)
    assert not tasks.offer("b", ONE, Places({"w1": 1}), "other", never)
    assert tasks.changed(Places({"w1": 1}), "full".__eq__) == ["a", "b"]
    assert not tasks.offer("a", ONE, Places({"w1": 1}), "full", "full".__eq__)
    assert tasks.offer("b", ONE, Places({"w1": 1}), "other", "full".__eq__)
    assert tasks.changed(Places({"w1": 1}), "full".__eq__) == []
    tasks.forget("b")
    assert tasks.changed(Places({"w1": 1}), "full".__eq__) == []
    assert tasks.changed(Places({"w1": 1}), never) == ["a"]


def test_tasks_that_were_offered_keep_their_place() -> None:
    """When the room is gone and comes again, they are offered before those parked earlier."""
    tasks = Restricted()
    for key in "abc":
        tasks.offer(key, ONE, Places({"w1": 1}), "j", never)
    assert tasks.changed(Places({}), never) == ["a"]
    tasks.offer("a", ONE, Places({}), "j", never)
    assert tasks.changed(Places({"w1": 1}), never) == ["a"]
