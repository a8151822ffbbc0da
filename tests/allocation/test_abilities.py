"""What allocators can do is found as by their protocols."""

from __future__ import annotations

import pytest

from slotwise.allocation.problem import (
    FinishReader,
    JointAllocator,
    ServiceReader,
    is_joint,
    reads_finish,
    reads_service,
)
from slotwise.scheduler import ALLOCATORS, make_allocator


@pytest.mark.parametrize("name", ALLOCATORS)
def test_abilities_agree_with_the_protocols(name):
    """Each allocator has an ability exactly if it follows the protocol."""
    allocator = make_allocator(name)
    assert is_joint(allocator) == isinstance(allocator, JointAllocator)
    assert reads_service(allocator) == isinstance(allocator, ServiceReader)
    assert reads_finish(allocator) == isinstance(allocator, FinishReader)
