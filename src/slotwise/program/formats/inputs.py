"""The input formats and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from slotwise.model.errors import InputError
from slotwise.program.formats.files import InputFile
from slotwise.program.formats.jsonlines import JsonLinesInput
from slotwise.program.formats.numbers import NumberInput
from slotwise.program.formats.parquet import ParquetInput
from slotwise.program.formats.splits import Piece
from slotwise.program.formats.text import TextInput

if TYPE_CHECKING:
    import pyarrow as pa


class InputFormat(Protocol):
    """How files are cut into pieces and read; it has no state, a name finds it."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[Piece]:
        """The pieces of a file, in its order, each of about `split_bytes` at most."""
        ...

    def records(self, piece: Piece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """The keys and the values of a piece's records, in blocks of bounded size."""
        ...

    def tables(self, piece: Piece) -> Iterator[pa.Table]:
        """The records of a piece as Arrow tables of bounded size."""
        ...

    def where(self, piece: Piece, number: int, key: Any) -> str:
        """Where in its file a record lies, for messages: the one of this number and key.

        Numbers count from 0 in each piece. Without a key (None) it is the record that could not
        be read, or the first one of a table.
        """
        ...


NUMBERS = "numbers"
INPUT_FORMATS: dict[str, InputFormat] = {
    "text": TextInput(),
    "jsonl": JsonLinesInput(),
    "parquet": ParquetInput(),
    NUMBERS: NumberInput(),
}


def input_format(name: str) -> InputFormat:
    """The input format of a name; raises InputError for an unknown one."""
    if name not in INPUT_FORMATS:
        raise InputError(
            f"unknown input format {name!r}; known: {', '.join(sorted(INPUT_FORMATS))}"
        )
    return INPUT_FORMATS[name]
