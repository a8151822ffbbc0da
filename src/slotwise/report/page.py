"""Write the report of runs: one HTML page that works offline, and its pictures as files."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotwise.model.errors import InputError, MissingExtraError
from slotwise.model.typed import check_path
from slotwise.opening import open_to_write
from slotwise.record.own_files import refuse_foreign
from slotwise.report.style import BEGIN

if TYPE_CHECKING:  # And imported where they are needed: most commands write no page.
    from slotwise.report.pictures.picture import Picture
    from slotwise.report.reported import ReportedRun
    from slotwise.report.scene import Scene

ENDINGS = (".html", ".htm")
"""The allowed suffixes of a page."""

_PNG_SCALE = 2.0


def write_report(
    runs: Sequence[ReportedRun], path: str | Path, pictures: bool = False
) -> list[Path]:
    """Write the page to `path`, and with `pictures` its pictures next to it; return all paths.

    The page is self-contained and makes no requests. Raises MissingExtraError without the extra
    `plots`, and InputError for no runs and for the reasons of `check_report`.
    """
    from slotwise.report.html import page

    check_report(path)
    path = Path(path)
    scene, drawn = _draw(runs)
    bundle = importlib.import_module("vl_convert").javascript_bundle()
    specs = [picture.spec() for picture in drawn]
    _write(path, page(scene, drawn, specs, bundle).encode("utf-8", "backslashreplace"))
    written = [path]
    if pictures:
        written += _save(drawn, specs, path.parent, f"{path.stem}-")
    return written


def check_report(path: str | Path) -> None:
    """Check before a run that its report can be written.

    Raises MissingExtraError without the extra `plots`, and InputError for a name without the
    suffix of a page and for a path that cannot be written.
    """
    require_plots()
    check_path("the path of a report", path, optional=False)
    with _input_errors(Path(path)):
        _check_path(Path(path))


def _check_path(path: Path) -> None:
    place = f"report {str(path)!r}"
    if path.is_dir():
        raise InputError(f"{place}: is a directory; name another file")
    folder = path.absolute().parent
    if not folder.exists():
        raise InputError(f"{place}: {str(folder)!r} is missing; name a folder that exists")
    if not folder.is_dir():
        raise InputError(f"{place}: {str(folder)!r} is not a directory; name another file")
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{place}: a report is a web page; use a name that ends in .html")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{place}: it cannot be written; name another file")
    with _input_errors(path):
        refuse_foreign(path, BEGIN.encode(), place)


def write_pictures(runs: Sequence[ReportedRun], folder: str | Path) -> list[Path]:
    """Write the pictures of a report into a folder, each as PNG and SVG; return all paths.

    The folder is created if it is missing. Raises InputError and MissingExtraError as
    `write_report` does.
    """
    drawn = _draw(runs)[1]
    specs = [picture.spec() for picture in drawn]
    with _input_errors(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return _save(drawn, specs, Path(folder), "")


def _draw(runs: Sequence[ReportedRun]) -> tuple[Scene, list[Picture]]:
    if not runs:
        raise InputError("a report needs at least 1 run; give one")
    require_plots()
    from slotwise.report.pictures.gallery import draw_all
    from slotwise.report.scene import scene_of

    scene = scene_of(runs)
    return scene, draw_all(scene)


def require_plots(what: str = "a report") -> None:
    """Raise MissingExtraError if the extra that draws pictures is not installed."""
    try:
        importlib.import_module("vl_convert")
        importlib.import_module("altair")
    except ImportError as error:
        raise MissingExtraError(what, "plots") from error


def _save(
    drawn: Sequence[Picture], specs: Sequence[dict[str, Any]], folder: Path, prefix: str
) -> list[Path]:
    converter = importlib.import_module("vl_convert")
    written = []
    for picture, spec in zip(drawn, specs, strict=True):
        svg = converter.vegalite_to_svg(spec)
        for ending, content in (
            ("png", converter.svg_to_png(svg, scale=_PNG_SCALE)),
            ("svg", svg.encode()),
        ):
            target = folder / f"{prefix}{picture.name}.{ending}"
            _write(target, content)
            written.append(target)
    return written


def _write(path: Path, content: bytes) -> None:
    with _input_errors(path), open_to_write(path) as file:
        file.write(content)


@contextmanager
def _input_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"report {str(path)!r}: {error.strerror}; name another file"
        ) from error
