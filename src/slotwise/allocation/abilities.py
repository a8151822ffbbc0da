"""What an allocator can do besides `share`, found by its methods.

`isinstance` with a protocol takes longer than a decision on a few phases.
"""

from __future__ import annotations

from typing import TypeGuard

from slotwise.allocation.problem import Allocator, FinishReader, JointAllocator, ServiceReader


def is_joint(allocator: Allocator) -> TypeGuard[JointAllocator]:
    """Whether it considers the claims on all kinds of slots at once."""
    return hasattr(allocator, "share_all")


def reads_service(allocator: Allocator) -> TypeGuard[ServiceReader]:
    """Whether it reads the service that jobs have attained."""
    return hasattr(allocator, "holds_for")


def reads_finish(allocator: Allocator) -> TypeGuard[FinishReader]:
    """Whether it reads the virtual finish of jobs."""
    return hasattr(allocator, "reads_finish")
