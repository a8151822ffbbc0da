"""Arguments that submit calls themselves when they are pickled."""

from __future__ import annotations

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
