"""How the command ends at a signal outside of a run."""

from __future__ import annotations

import os
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """End the process. Nothing has begun yet, or everything is done."""
    os.write(2, b"slotwise: interrupted\n")
    os._exit(130)
