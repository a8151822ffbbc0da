"""The results of the experiments of a figure, and its files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.figure import Figure, Row
from slotwise.core.errors import InputError, MissingExtraError

_PNG_SCALE = 2.0


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A figure with its rows; `seconds` is the time that the experiments took."""

    figure: Figure
    runs: int
    seed: int
    seconds: float
    rows: tuple[Row, ...]

    def to_plain(self) -> dict[str, Any]:
        """The reproduction as JSON values."""
        return {
            "figure": self.figure.name,
            "title": self.figure.title,
            "axis": self.figure.axis,
            "runs": self.runs,
            "seed": self.seed,
            "seconds": self.seconds,
            "rows": [dict(row) for row in self.rows],
        }

    def write_table(self, folder: str | Path) -> Path:
        """Write NAME.csv, a line for each row, into a folder, which is created if missing.

        InputError if it cannot be written.
        """
        path = _folder(folder) / f"{self.figure.name}.csv"
        with _input_errors(path), path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["figure", *self.rows[0]])
            writer.writeheader()
            writer.writerows({"figure": self.figure.name, **row} for row in self.rows)
        return path

    def write_pictures(self, folder: str | Path) -> list[Path]:
        """Write NAME.png and NAME.svg into a folder, which is created if missing.

        MissingExtraError without the extra `plots`; InputError if they cannot be written.
        """
        try:
            converter = importlib.import_module("vl_convert")
            picture = self.figure.draw(self.rows)
        except ImportError as error:
            raise MissingExtraError("the picture of a figure", "plots") from error
        svg = converter.vegalite_to_svg(picture.spec())
        stem = _folder(folder) / self.figure.name
        png_path, svg_path = stem.with_suffix(".png"), stem.with_suffix(".svg")
        with _input_errors(svg_path):
            svg_path.write_text(svg, encoding="utf-8")
        with _input_errors(png_path):
            png_path.write_bytes(converter.svg_to_png(svg, scale=_PNG_SCALE))
        return [png_path, svg_path]


def check_folder(folder: str | Path) -> None:
    """Raise InputError if the folder cannot be created or written, before experiments start."""
    probe = _folder(folder) / ".slotwise"
    with _input_errors(probe):
        probe.touch()
        probe.unlink()


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    with _input_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _input_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{str(path)!r}: {error.strerror}; name another folder") from error
