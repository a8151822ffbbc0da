"""Small tables: as lines of text for terminals, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from slotwise.insight.report.text import MISSING

_NAMES = ("job", "scheduler")
"""Columns that are never numbers, whatever their cells look like."""


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column contains numbers and is right-aligned."""
    return all(cell == MISSING or cell.removeprefix("-")[:1].isdigit() for cell in cells)


def grid_lines(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """A table as lines of text: the titles, then the rows. All columns are left-aligned."""
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [map(str.ljust, row, widths) for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def grid_html(columns: Mapping[str, Sequence[str]]) -> str:
    """A table with inline styles, readable under any style sheet of the notebook."""
    sides = {
        title: "right" if title not in _NAMES and is_numeric(cells) else "left"
        for title, cells in columns.items()
    }
    head = "".join(_cell("th", title, sides[title]) for title in columns)
    body = ""
    for row in zip(*columns.values(), strict=True):
        cells = zip(row, sides.values(), strict=True)
        body += f"<tr>{''.join(_cell('td', text, side) for text, side in cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def framed_html(parts: Sequence[str]) -> str:
    """Parts of HTML, one below the other, which scroll if they are wide."""
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
