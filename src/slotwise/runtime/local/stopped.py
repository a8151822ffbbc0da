"""Whether a process is stopped, and by whom: what the kernel says of it in /proc."""

from __future__ import annotations

import os
import signal

PENDING = b"\nShdPnd:\t"
"""The line with the signals that wait for the process as a whole, 16 digits of base 16."""

STOP_BIT = 1 << (signal.SIGSTOP - 1)


def is_stopped(pid: int, by_us: bool) -> bool:
    """Whether somebody else has stopped a process by SIGSTOP; `by_us`: we have stopped it, too.

    A stopped process takes no further SIGSTOP: one that comes then waits, and is seen to wait,
    until SIGCONT takes it away. So our own stops and those of others can be told apart. If both
    come within the same instant, the kernel keeps but one, which is taken for ours.
    A process that is gone is not stopped, and nor is one that cannot be looked at. One system
    call to open, one to read, one to close: some 20 microseconds.
    """
    try:
        status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        text = os.read(status, 4096)
    except OSError:
        return False
    finally:
        os.close(status)
    if b"\nState:\tT" not in text:
        return False
    if not by_us:
        return True
    at = text.index(PENDING) + len(PENDING)
    return bool(int(text[at : at + 16], 16) & STOP_BIT)
