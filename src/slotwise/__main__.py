"""The `slotwise` command, also as `python -m slotwise`."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command; a signal before its modules are loaded ends it at once."""
    fill_standard_streams()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # As nohup has it, and a shell's `&`.
            signal.signal(number, leave)
    from slotwise.cli.main import main as run

    run()


def fill_standard_streams() -> None:
    """Open those of descriptors 0 to 2 that are closed: no file of ours shall become stderr."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It takes the lowest number that is free.


def leave(number: int, frame: FrameType | None) -> None:
    """End the process: nothing is begun yet, or all is done."""
    os.write(2, b"slotwise: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    from slotwise.__main__ import main as of_module  # By its name, as others import it.

    of_module()
