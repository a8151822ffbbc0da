"""Logs that no run has written: whatever is done with them ends, or ends in one message."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log, following
from slotwise.results import Result
from tiers import examples

ODD = (None, {}, [], "", "h9", -1, 0, 2**70, 1e308, True, [[1]], {"is": "Host"})
"""What is put in the place of values."""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The log of a small run with two jobs."""
    path = tmp_path_factory.mktemp("log") / "log"
    jobs = [
        Job(
            "a", (Phase("m", Tasks(3, 1.0)), Phase("r", Tasks(1, 1.0), after=frozenset({"m"})))
        ),
        Job("b", (Phase("m", Tasks(2, 0.5)),), arrival=0.5, pool="q"),
    ]
    slotwise.simulate(jobs, "flex", slots=2, log=path)
    return path.read_text().splitlines()


def places(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Each value within a JSON value: what holds it, and under which key."""
    keys = plain if isinstance(plain, dict) else range(len(plain))
    for key in keys:
        yield plain, key
        if isinstance(plain[key], dict | list):
            yield from places(plain[key])


def damaged(lines: list[str], rng: random.Random) -> str:
    """The log with a key that is missing, a value that is another one, or lines in disorder."""
    text = list(lines)
    number = rng.randrange(len(text))
    how = rng.randrange(5)
    if how == 0:
        text[number] = text[rng.randrange(len(text))]
    elif how == 1:
        del text[number]
    else:
        plain = json.loads(text[number])
        holder, key = rng.choice(list(places(plain)))
        if how == 2:
            del holder[key]
        else:
            holder[key] = rng.choice(ODD)
        text[number] = json.dumps(plain)
    return "\n".join(text) + "\n"


def test_a_damaged_log_is_read_or_refused(lines: list[str], tmp_path: Path) -> None:
    """Replay, explain and the measures of the report give a result, or a message."""
    rng, path = random.Random(0), tmp_path / "log"
    refused = 0
    for _ in range(examples(80, slow=5000)):
        path.write_text(damaged(lines, rng))
        for use in (measure, slotwise.replay, slotwise.explain, why):
            refused += is_refused(use, path)
    assert refused > examples(30, slow=100)


def is_refused(use: Callable[[Path], object], path: Path) -> bool:
    """Whether a use of a log ends in a message. All other errors go through."""
    try:
        use(path)
    except SlotwiseError:
        return True
    return False


@pytest.mark.parametrize("attempt", [10**30, 2**32, -1])
def test_an_attempt_of_any_number_is_followed_or_refused(
    lines: list[str], tmp_path: Path, attempt: int
) -> None:
    """An attempt that no run counts to."""
    path = tmp_path / "log"
    text = "\n".join(lines) + "\n"
    path.write_text(text.replace('"attempt":1', f'"attempt":{attempt}'))
    for use in (measure, slotwise.replay, slotwise.explain, why):
        is_refused(use, path)


def measure(path: Path) -> None:
    """What the report shows."""
    with following(path) as log:
        _ = Result.of_log(log).reported


def why(path: Path) -> None:
    """As `slotwise explain --job --at`."""
    slotwise.explain(path, "a", 0.7)


@pytest.mark.parametrize(
    ("entry", "key", "value"),
    [
        ("Launch", "host", "nowhere"),
        ("JobArrived", "job", {}),
        ("TaskFinished", "task", 99),
    ],
)
def test_an_entry_that_cannot_be_is_refused(
    lines: list[str], tmp_path: Path, entry: str, key: str, value: object
) -> None:
    """By every command, with exit code 2 and one message."""
    turns = [json.loads(line) for line in lines]
    entries = [e for turn in turns[1:] for e in (*turn["events"], *turn["decisions"])]
    next(e for e in entries if e["is"] == entry)[key] = value
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    for use in (measure, slotwise.replay, slotwise.explain, why):
        with pytest.raises(SlotwiseError, match="name a file that --log has written"):
            use(path)


def test_a_contradictory_log_in_memory_is_refused(lines: list[str], tmp_path: Path) -> None:
    """From Python, too: its turns come a second time."""
    path = tmp_path / "log"
    path.write_text("\n".join(lines))
    log = slotwise.read_log(path)
    wrong = Log(log.header, [*log.turns, *log.turns])
    for follow in (slotwise.explain, slotwise.replay):
        with pytest.raises(InputError, match="log: its entries contradict each other"):
            follow(wrong)
