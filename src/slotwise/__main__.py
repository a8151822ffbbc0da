"""The `slotwise` command, also as `python -m slotwise`."""

from __future__ import annotations

import os
import signal
import sys

from slotwise import __version__
from slotwise.cli.streams import StdoutError, guard_streams, leave

COMPLETION_VARIABLE = "_SLOTWISE_COMPLETE"
"""The environment variable with which the script of a shell asks for completions."""

VERBS = {
    *("submit", "status", "list", "wait", "cancel", "hold", "release", "priority", "move"),
    "what-if",
    *("workers", "top", "eta", "completion", "token", "login", "logout", "page", "slurm-path"),
}
"""The commands that ask a server, which load without those that schedule."""


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
            run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except StdoutError as error:  # Of output outside of commands, such as help.
        sys.stderr.write(f"slotwise: {error}\n")
        sys.exit(2)


def run(words: list[str]) -> None:
    """Run a command with as few modules as it needs, because loading all takes a second."""
    if words == ["--version"]:
        print(f"slotwise {__version__}")
        return
    if words[:1] == ["submit"]:
        from slotwise.cli.submit import quick

        code = quick(words[1:])
        if code is not None:
            sys.exit(code)
    verb = _completed_verb() if COMPLETION_VARIABLE in os.environ else "".join(words[:1])
    if verb in VERBS:
        from slotwise.cli.service import main as run_command
    else:
        from slotwise.cli.main import main as run_command
    run_command()


def _completed_verb() -> str:
    """The command whose words a shell completes, or ""."""
    from typer import completion

    completion.completion_init()  # type: ignore[attr-defined]
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    words = line.split()
    return words[1] if len(words) > 1 + (not line[-1:].isspace()) else ""


def fill_standard_streams() -> None:
    """Open closed descriptors from 0 to 2, so that no file of ours gets one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number.


if __name__ == "__main__":
    main()
