"""The command `slotwise what-if`, and how it and `submit --dry-run` show what would happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Annotated, Any

import typer

from slotwise.cli.application import print_json
from slotwise.cli.parsing import Json, Server
from slotwise.core.errors import InputError
from slotwise.core.units import is_number_text
from slotwise.forecast.eta import Changed, Eta, Range, WhatIf
from slotwise.insight.report.ranges import UNKNOWN, instant_near, instants
from slotwise.insight.report.text import number, printable, seconds
from slotwise.service.clients.transport import Transport

SHOWN_MAX = 10
"""The most jobs in the text of an answer."""

LATE_JOBS = "missed deadlines"
"""The measure that counts jobs; others are seconds."""

PATH = "/v1/what-if"


def _repeated(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=f"{help}; may be repeated.")


def what_if(
    weight: Annotated[list[str] | None, _repeated("POOL=NUMBER", "Another weight")] = None,
    slots_min: Annotated[list[str] | None, _repeated("POOL=N", "Another min share")] = None,
    slots_max: Annotated[list[str] | None, _repeated("POOL=N", "Another max share")] = None,
    resources_max: Annotated[
        list[str] | None, _repeated("POOL=RESOURCE=AMOUNT", "Another limit of a resource")
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="Another scheduler.")] = None,
    host: Annotated[list[str] | None, _repeated("NAME:SLOTS", "A host that joins")] = None,
    without_host: Annotated[list[str] | None, _repeated("NAME", "A host that leaves")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what a change would do to the jobs of the server. Nothing is changed.

    Both courses are simulated by the same random numbers. It needs the role `admin`; for a job
    of your own there is `slotwise submit --dry-run`.

    `slotwise what-if --weight team=2 --slots-max batch=5`

    `slotwise what-if --scheduler fair --host h9:8 --without-host h1`
    """
    pools: dict[str, dict[str, Any]] = {}
    stated = {"weight": weight, "slots_min": slots_min, "slots_max": slots_max}
    for key, texts in stated.items():
        for text in texts or ():
            name, value = _pair(f"--{key.replace('_', '-')}", text, "=")
            pools.setdefault(name, {})[key] = _number(value)
    for text in resources_max or ():
        name, resource, amount = _limit(text)
        limits = pools.setdefault(name, {}).setdefault("resources_max", {})
        limits[resource] = _number(amount)
    hosts = [_pair("--host", text, ":") for text in host or ()]
    body = {
        "pools": pools,
        "scheduler": scheduler,
        "hosts": [{"name": name, "slots": _number(slots)} for name, slots in hosts],
        "without_hosts": without_host,
    }
    show_answer(ask(Transport(server), body), as_json=as_json)


def ask(transport: Transport, body: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a server what would happen; an answer may take as long as two forecasts."""
    found: dict[str, Any] = transport.post(PATH, body)
    return found


def show_answer(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a server has answered: new jobs, or measures, and the jobs that change."""
    from slotwise.cli.service_tables import console, table_of

    if as_json:
        print_json(found)
        return
    answer, now = WhatIf.of_plain(found), found["now"]
    for one in answer.jobs:
        if one.before is None and one.after is not None:
            promise = "; its promise could be given now" * (one.job in found["promises"])
            text = _new(one, one.after, now, one.job in found["deadlines"])
            print(printable(f"{text}{promise}"))
    if not found["new"]:
        rows = [(name, *_measured(name, both)) for name, both in answer.measures.items()]
        console().print(table_of(("", "now", "then"), rows, (1, 2)))
    others = [one for one in answer.jobs if one.delay is not None]
    if not others:
        print("no other job would end at another time")
        return
    users = {row["job"]: row["user"] for row in found["jobs"]}
    rows = [(one.job, users[one.job], *_row(one, now)) for one in others[:SHOWN_MAX]]
    headings = ("job", "user", "ends now", "then", "change", "misses its deadline")
    console().print(table_of(headings, rows))
    if len(others) > SHOWN_MAX:
        print(f"and {len(others) - SHOWN_MAX} more jobs")


def _new(one: Changed, eta: Eta, now: float, has_deadline: bool) -> str:
    """When a new job would start and end, and whether it keeps its deadline."""
    start = "" if eta.start is None else f"starts {_range(eta.start, now)}, "
    text = f"{one.job}: {start}ends {_range(eta.end, now)}"
    if has_deadline:
        text += f"; keeps its deadline with a probability of {1 - one.late_after:.0%}"
    return text


def _row(one: Changed, now: float) -> tuple[str, ...]:
    """The median ends of a job, its delay, and how probably it misses its deadline."""
    ends = [inf if eta is None else eta.end.median for eta in (one.before, one.after)]
    shown = (instant_near(end, now) if isfinite(end) else UNKNOWN for end in ends)
    late, delay = "", ends[1] - ends[0]
    if one.late_before or one.late_after:
        late = f"{one.late_before:.0%}, then {one.late_after:.0%}"
    change = f"{'+' if delay >= 0 else '-'}{seconds(abs(delay))}" if isfinite(delay) else ""
    return *shown, change, late


def _measured(name: str, both: Sequence[float]) -> Iterator[str]:
    for value in both:
        shown = number(value) if name == LATE_JOBS else seconds(value)
        yield shown if isfinite(value) else UNKNOWN


def _range(found: Range, now: float) -> str:
    return instants(found.low, found.high, now)


def _pair(option: str, text: str, sign: str) -> tuple[str, str]:
    name, found, value = text.rpartition(sign)
    if not (name and found and value):
        example = "h9:8" if sign == ":" else "team=2"
        raise InputError(f"{option} is {text!r}; expected NAME{sign}VALUE, as in {example}")
    return name, value


def _limit(text: str) -> tuple[str, str, str]:
    """The pool, the resource and the amount of a limit. The pool may have any sign."""
    name, *limit = text.rsplit("=", 2)
    if len(limit) < 2 or not (name and all(limit)):
        raise InputError(
            f"--resources-max is {text!r}; expected POOL=RESOURCE=AMOUNT, as in"
            " team=memory=8GiB"
        )
    resource, amount = limit
    return name, resource, amount


def _number(text: str) -> int | float | str:
    """A number; other text, such as 50%, is for the server."""
    return int(text) if text.isdecimal() else float(text) if is_number_text(text) else text
