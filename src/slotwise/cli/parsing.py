"""Options of many commands, and parsers of amounts and durations; fast to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from slotwise.core.errors import InputError
from slotwise.core.resources import MEMORY
from slotwise.core.units import is_number_text, seconds_or_duration

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The server: unix:PATH or https://HOST:PORT [default: $SLOTWISE_SERVER, or your"
        " own].",
    ),
]


def seconds_option(help: str, least: float | None = None) -> Any:
    """An option in seconds, or as a duration such as 5m, of at least this."""

    def parse(text: Any) -> float:
        """The seconds of the text of an option; a default is a number."""
        try:
            seconds = seconds_or_duration(str(text))
        except ValueError as error:
            raise typer.BadParameter(f"{text!r}: {error}") from None
        if least is not None and seconds < least:
            raise typer.BadParameter(f"{text!r}: expected seconds >= {least:g}")
        return seconds

    metavar = "SECONDS" if least is None else f"SECONDS>={least:g}"
    return typer.Option(help=help, parser=parse, metavar=metavar)


@contextmanager
def expecting(option: str, text: str, expected: str) -> Iterator[None]:
    """Turn a ValueError about the text of an option into an InputError."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{option} is {text!r}; expected {expected}") from error


def parse_resources(text: str | None) -> Mapping[str, Any] | None:
    """Parse amounts by name: memory=6GiB,gpu=1. Raises InputError."""
    if text is None:
        return None
    with expecting("--resources", text, "amounts by name, as in memory=6GiB,gpu=1"):
        return {
            name: amount.strip()
            if name == MEMORY and not is_number_text(amount)
            else _number(amount)
            for name, amount in pairs(text)
        }


def _number(text: str) -> int | float:
    """A number, whole if it can be; ValueError for other text."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def pairs(text: str) -> list[tuple[str, str]]:
    """Split into keys and values; ValueError for an invalid pair or a duplicate key."""
    found = [(key.strip(), value) for key, value in (p.split("=") for p in text.split(","))]
    if len({key for key, _ in found}) < len(found) or not all(key for key, _ in found):
        raise ValueError
    return found
