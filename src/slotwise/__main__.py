"""The `slotwise` command, also as `python -m slotwise`."""

from __future__ import annotations

import os
import signal
import sys

from slotwise import __version__
from slotwise.cli.streams import StdoutError, guard_streams, leave


def main() -> None:
    """Run the command. A signal before its modules are loaded ends the process."""
    fill_standard_streams()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores some.
            signal.signal(number, leave)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Ignored, it would hide exit codes.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    guard_streams()
    try:
        try:
            if sys.argv[1:] == ["--version"]:
                print(f"slotwise {__version__}")  # Without loading the other modules.
            else:
                from slotwise.cli.main import main as run

                run()
        finally:
            sys.stdout.flush()
    except StdoutError as error:  # Of output outside of commands, such as help.
        sys.stderr.write(f"slotwise: {error}\n")
        sys.exit(2)


def fill_standard_streams() -> None:
    """Open closed descriptors from 0 to 2, so that no file of ours gets one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number.


if __name__ == "__main__":
    main()
