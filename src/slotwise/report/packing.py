"""Pack rows for the page without repeated text, at a third of the size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def packed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Pack rows with the same fields as one table; texts become indices into `words`.

    `words` has the list of distinct texts for each column of texts, and None for other columns.
    """
    fields = list(rows[0]) if rows else []
    columns = [[row[field] for row in rows] for field in fields]
    words = [_words(column) for column in columns]
    for place, of_column in enumerate(words):
        if of_column is not None:
            numbers = {word: number for number, word in enumerate(of_column)}
            columns[place] = [numbers[word] for word in columns[place]]
    table = [list(row) for row in zip(*columns, strict=True)] if fields else [[] for _ in rows]
    return {"fields": fields, "words": words, "rows": table}


def _words(column: Sequence[Any]) -> list[str] | None:
    if all(isinstance(value, str) for value in column):
        return list(dict.fromkeys(column))
    return None
