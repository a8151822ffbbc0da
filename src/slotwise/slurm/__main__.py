"""The programs that `slotwise slurm-path` makes: `python -m slotwise.slurm sbatch ...`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from slotwise import __version__
from slotwise.core.errors import SlotwiseError
from slotwise.insight.report.text import printable
from slotwise.slurm.folder import COMMANDS

FAILED, INTERRUPTED = 1, 130
"""Exit codes: of Slurm's commands after any error, and after Ctrl-C."""

HELP = "{0} of slotwise takes options as Slurm's; docs/howto/slurm-commands.md lists them."


def main(words: Sequence[str]) -> int:
    """Run a command by its name; the exit code."""
    name, *rest = words
    if "--help" in rest or "--usage" in rest:
        print(HELP.format(name))
        return 0
    if rest[:1] in (["--version"], ["-V"]):
        print(f"slotwise {__version__}")
        return 0
    try:
        return _command(name)(rest)
    except SlotwiseError as error:
        print(f"{name}: error: {printable(str(error), lines=True)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(name: str) -> Callable[[Sequence[str]], int]:
    """A command, of whose modules only those that it needs are loaded."""
    assert name in COMMANDS, name
    if name in ("sbatch", "srun"):
        from slotwise.slurm import submitting

        return submitting.sbatch if name == "sbatch" else submitting.srun
    from slotwise.slurm import asking

    found: Callable[[Sequence[str]], int] = getattr(asking, name)
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # As in `squeue | head`.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # No thread or cleanup is left, and this is faster.
