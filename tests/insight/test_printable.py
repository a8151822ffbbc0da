"""What a terminal would obey is escaped; all other text stays as it is."""

import pytest

from slotwise.insight.report.text import printable


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Ünïcödé 统计 🙂 a\\b", "Ünïcödé 统计 🙂 a\\b"),
        ("\x1b[31mred\x07\r\x9b", "\\x1b[31mred\\x07\\r\\x9b"),
        ("one\ntwo\tthree", "one\\ntwo\\tthree"),
        ("\u202eright to left\u2069", "\\u202eright to left\\u2069"),
        ("no text: \udce9", "no text: \\udce9"),
    ],
)
def test_names_are_printed_on_a_line(text: str, printed: str) -> None:
    """Control characters become escapes of Python."""
    assert printable(text) == printed


def test_messages_keep_their_lines() -> None:
    """Tracebacks have several lines."""
    assert printable("one\n\ttwo\r\x1b", lines=True) == "one\n\ttwo\\r\\x1b"
