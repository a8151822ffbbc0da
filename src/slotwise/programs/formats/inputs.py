"""The input formats and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from slotwise.model.errors import InputError
from slotwise.programs.formats.files import InputFile
from slotwise.programs.formats.jsonlines import JsonLinesInput
from slotwise.programs.formats.numbers import NumberInput
from slotwise.programs.formats.parquet import ParquetInput
from slotwise.programs.formats.splits import SplitPiece
from slotwise.programs.formats.text import TextInput

if TYPE_CHECKING:
    import pyarrow as pa


class InputFormat(Protocol):
    """How files are cut into pieces and read. It has no state and is looked up by name."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """The pieces of a file, in file order, each of at most about `split_bytes`."""
        ...

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """The keys and the values of a piece's records, in blocks of bounded size."""
        ...

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """The records of a piece as Arrow tables of bounded size."""
        ...

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """The position in its file of the record with this number and key, for messages.

        Numbers count from 0 in each piece. The key is None for a record that could not be read,
        and for the first record of a table.
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
    """Return the input format with this name; raise InputError if it is unknown."""
    if name not in tuple(INPUT_FORMATS):  # It may be unhashable.
        raise InputError(
            f"unknown input format {name!r}; known: {', '.join(sorted(INPUT_FORMATS))}"
        )
    return INPUT_FORMATS[name]
