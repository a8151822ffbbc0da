"""The malleable packing scheme (FLEX 3.1)."""

from slotwise.allocation.packing.packer import CompiledPacker, EventPacker, Packer
from slotwise.allocation.packing.pieces import Packing, Pieces
from slotwise.allocation.packing.scheme import completions, pack, packer_for

__all__ = [
    "CompiledPacker",
    "EventPacker",
    "Packer",
    "Packing",
    "Pieces",
    "completions",
    "pack",
    "packer_for",
]
