"""Arguments of calls: those that submit calls themselves, and those that cannot be pickled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sessions.small_calls import PATIENCE
from slotwise import Future, Session


class Computed:
    """An argument that is sent as the result of another call."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return int, (self.session.submit(pow, 2, 3).result(),)


def test_an_argument_may_submit_a_call_when_it_is_pickled() -> None:
    """The inputs of the outer call are those before and after this argument."""
    with Session(1, "fair") as session:
        one: Future[int] = session.submit(pow, 3, 2)
        other: Future[int] = session.submit(pow, 2, 4)
        assert session.submit(sum, [one, Computed(session), other]).result() == 9 + 8 + 16


class Box:
    """An object with something inside."""

    def __init__(self, content: object) -> None:
        self.content = content


def work(first: object, second: object = None) -> None:
    """Do nothing."""


def endless() -> Iterator[int]:
    """A generator, which cannot be pickled."""
    yield 1


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, endless()), {}, "argument 'second' is of type generator, which cannot be sent to"),
        ((1,), {"second": endless()}, "argument 'second' is of type generator, which"),
        (
            ({"a": [1, endless()]},),
            {},
            "argument 'first', of type dict, has ['a'][1] of type generator, which cannot",
        ),
        (
            (Box((endless(),)),),
            {},
            "argument 'first', of type Box, has .content[0] of type generator, which cannot",
        ),
    ],
)
def test_an_argument_that_cannot_be_pickled_is_named(
    session: Session, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """With the part of it, and its type."""
    with pytest.raises(TypeError, match=re.escape(message)):
        session.submit(work, *args, **kwargs).result(PATIENCE)
    with session.executor() as executor, pytest.raises(TypeError, match=re.escape(message)):
        executor.submit(work, *args, **kwargs).result(PATIENCE)


def test_an_argument_without_a_name_has_its_number(session: Session) -> None:
    """Of a function that takes any."""
    with pytest.raises(TypeError, match="argument 2 is of type generator"):
        session.submit(print, 1, endless()).result(PATIENCE)


def test_an_option_of_an_executor_is_none_of_submit(session: Session) -> None:
    """All keyword arguments are those of the function; one that it lacks may be meant so."""
    with pytest.raises(TypeError, match=r"'pool'; if .*, use session.executor\(pool=\.\.\.\)"):
        session.submit(work, 1, pool="reports").result(PATIENCE)
    assert session.submit(dict, pool="reports").result(PATIENCE) == {"pool": "reports"}
