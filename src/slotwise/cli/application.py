"""The application: its commands, exit codes, and messages.

Exit codes: 0 done, 1 a job failed, 2 bad input, 130 interrupted. Results go to stdout,
everything else to stderr. Nothing here needs a scheduler or a backend: commands that ask a
server must start fast.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.models import CommandFunctionType

from slotwise.backends.signals import ENDING
from slotwise.cli.streams import leave
from slotwise.core.errors import (
    InputError,
    SlotwiseError,
    SlotwiseWarning,
    as_in_commands,
    suggestion,
)
from slotwise.insight.report.text import printable

if TYPE_CHECKING:
    from rich.console import Console

MEANT_OPTIONS = {
    **dict.fromkeys(("-j", "-n", "--jobs", "--workers", "--max-workers"), "--slots"),
    **dict.fromkeys(("--cores", "--cpus", "--threads", "--processes"), "--slots"),
    **dict.fromkeys(("-f", "--force"), "--overwrite"),
    "--policy": "--scheduler",
    "--retries": "--attempts",
}
"""Options of other tools, and those of slotwise that do the same."""

MEANT_COMMANDS = {
    **dict.fromkeys(("start", "exec", "execute", "launch"), "run"),
    **dict.fromkeys(("add", "sbatch", "enqueue"), "submit"),
    **dict.fromkeys(("ls", "jobs", "ps", "queue", "squeue"), "list"),
    **dict.fromkeys(("kill", "stop", "rm", "remove", "delete", "scancel"), "cancel"),
    **dict.fromkeys(("cat", "follow", "tail", "output"), "logs"),
    **dict.fromkeys(("nodes", "hosts", "sinfo"), "workers"),
    "unhold": "release",
    **dict.fromkeys(("draw", "graph"), "show"),
    "why": "explain",
    **dict.fromkeys(("when", "forecast", "predict"), "eta"),
}
"""Commands of other tools, and those of slotwise that do the same."""


class CommandOfApplication(TyperCommand):
    """A command that refuses unknown options with a suggestion.

    Its help has no type for options without a value.
    """

    def get_params(self, ctx: Any) -> Any:
        """The parameters, of which flags have no type."""
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command. InputError for an unknown option."""
        stated = [one for one in self.get_params(ctx) if isinstance(one, TyperOption)]
        options = {name: one for one in stated for name in (*one.opts, *one.secondary_opts)}
        names = [*options, *ctx.help_option_names]
        rest = iter(args)
        for word in rest:
            name, has_value, _ = word.partition("=")
            if word == "--":
                break
            if name in options and not (options[name].is_flag or has_value):
                next(rest, None)  # Its value.
            if word[:1] == "-" and word[:2] != "--":  # As in -oFILE.
                name = name if name in names else word[:2]
            if name[:1] == "-" and name not in (*names, "-"):
                meant = suggestion(name, names, "--help lists them", MEANT_OPTIONS)
                raise InputError(f"`{ctx.info_name}` has no option {name}; {meant}")
        return super().parse_args(ctx, args)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            hint = suggestion(name, self.commands, meant=MEANT_COMMANDS)
            raise InputError(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with exit_codes():
            return super().invoke(ctx)


class Application(typer.Typer):
    """Commands in a group; errors that a user can cause become messages and exit codes."""

    def __init__(self, **named: Any) -> None:
        super().__init__(cls=_Group, **named)

    def command(
        self, name: str | None = None, **named: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """A decorator for a function that becomes a command."""
        return super().command(name, **{"cls": CommandOfApplication, **named})


def _without_types(parameters: Any) -> Any:
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors that a user can cause into one message and an exit code.

    The messages name options as on the command line.

    In this context, the first termination signal stops a run cleanly and later signals are
    ignored. Outside of it a signal ends the command immediately.
    """
    try:
        with first_signal_interrupts(), _warnings_as_messages(), as_in_commands():
            yield
            sys.stdout.flush()
    except SlotwiseError as error:
        show_message(f"slotwise: {error}", style="red")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as stop:
        show_message(f"slotwise: {str(stop) or 'interrupted'}")
        raise typer.Exit(130) from stop


@contextmanager
def first_signal_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal instead of ending the command."""
    handled = [number for number in ENDING if signal.getsignal(number) is leave]
    for number in handled:
        signal.signal(number, _stop)
    yield
    for number in handled:
        signal.signal(number, leave)


def print_json(plain: Any) -> None:
    """Print an object as one line of JSON."""
    print(json.dumps(plain, allow_nan=False), flush=True)


def show_message(text: str, style: str = "") -> None:
    """Print a message on stderr."""
    text = printable(text, lines=True)
    errors().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def errors() -> Console:
    """A console on stderr, for messages and progress."""
    from rich.console import Console  # Commands without messages need none.

    return Console(stderr=True)


@contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """Print the warnings of slotwise as messages, without file and line."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **to: Any) -> None:
        if issubclass(category, SlotwiseWarning):
            show_message(f"slotwise: {message}")
        else:
            before(message, category, *where, **to)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop the run; ignore later signals, which would interrupt the cleanup."""
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
