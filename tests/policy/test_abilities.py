"""What allocators can do besides `share`."""

from __future__ import annotations

from slotwise.policy.allocator import is_joint, reads_finish, reads_service
from slotwise.policy.scheduler import ALLOCATORS, make_allocator


def test_few_allocators_have_further_abilities() -> None:
    """All others share the slots of each kind by themselves, from claims alone."""
    made = {name: make_allocator(name) for name in ALLOCATORS}
    joint = [name for name, one in made.items() if is_joint(one)]
    assert joint == ["flowflex", "flowflex-fast", "flowflex-paper"]
    assert [name for name, one in made.items() if reads_service(one)] == ["las"]
    assert [name for name, one in made.items() if reads_finish(one)] == ["uwfq"]
