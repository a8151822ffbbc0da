"""Jobs of a session have different names."""

from __future__ import annotations

from slotwise.sessions.intake import Names


def test_names_are_never_used_twice() -> None:
    """Whatever number a wanted name ends in; a name of many numbers is remembered once."""
    names = Names()
    wanted = [
        "a",
        "a",
        "a-1",
        "a-0",
        "a-7",
        "a",
        "a-7",
        "b-0",
        "b",
        "-3",
        "-3",
        "7",
        "7",
    ]
    given = [names.unused(name) for name in wanted]
    assert given == [
        *("a", "a-2", "a-3", "a-4", "a-7", "a-8", "a-9"),
        *("b-1", "b-2", "-3", "-3-2", "7", "7-2"),
    ]
    for number in range(100):
        names.unused(f"c-{number}")
    assert len(names._last) == 5
