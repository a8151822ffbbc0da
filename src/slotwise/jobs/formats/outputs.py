"""The output formats and their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.core.errors import InputError, check_installed, suggestion
from slotwise.jobs.formats.files import create_output
from slotwise.jobs.formats.parquet import ParquetOutput, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


class TextOutput:
    """A line `key<TAB>value` for each pair, in UTF-8, or `column<TAB>column...` for each row.

    If the key or the value is None, only the other is written. A value that is a tuple or list
    is written tab-separated, other values with str(). Tabs and line breaks within text are not
    escaped, so such text cannot be split back into its fields.
    """

    def __init__(self, path: str) -> None:
        self.rows = 0
        self._file = create_output(path)

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Append a line for each pair."""
        kinds = set(map(type, keys)) | set(map(type, values))
        if kinds <= {str, int}:
            lines = [f"{key}\t{value}\n" for key, value in zip(keys, values, strict=True)]
        else:
            lines = [_line(key, value) for key, value in zip(keys, values, strict=True)]
        self._append(lines)

    def write_table(self, table: pa.Table) -> None:
        """Append a line for each row."""
        columns = [column.to_pylist() for column in table.columns]
        self._append(["\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)])

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _append(self, lines: list[str]) -> None:
        self.rows += len(lines)
        self._file.write("".join(lines).encode("utf-8", "replace"))


class JsonLinesOutput(TextOutput):
    """One JSON object per line: {"key": ..., "value": ...} for a pair, the columns of a row.

    A pair (None, dict) is written as the dict alone.
    """

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Append an object for each pair."""
        self._append(_json_lines(rows_of(keys, values)))

    def write_table(self, table: pa.Table) -> None:
        """Append an object for each row."""
        self._append(_json_lines(table.to_pylist()))


PartWriter = TextOutput | ParquetOutput
"""Writes one part of the output; `rows` is the number of rows written."""

OUTPUT_FORMATS: dict[str, Callable[[str], PartWriter]] = {
    "text": TextOutput,
    "jsonl": JsonLinesOutput,
    "parquet": ParquetOutput,
}
SUFFIXES = {"text": "", "jsonl": ".jsonl", "parquet": ".parquet"}


def check_output_format(name: str) -> None:
    """Raise InputError for an unknown output format, MissingExtraError if pyarrow is needed."""
    if name not in tuple(OUTPUT_FORMATS):  # It may be unhashable.
        raise InputError(
            f"unknown output format {name!r}; {suggestion(name, sorted(OUTPUT_FORMATS))}"
        )
    if name == "parquet":
        check_installed("pyarrow", "Parquet output", "arrow")


def _json_lines(rows: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows]


def _line(key: Any, value: Any) -> str:
    fields = [] if key is None else [key]
    if isinstance(value, (tuple, list)):
        fields += value
    elif value is not None:
        fields.append(value)
    return "\t".join(map(str, fields)) + "\n"
