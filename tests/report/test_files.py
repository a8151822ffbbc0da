"""The files of a report: the page, its pictures, and names that are refused."""

import re
import subprocess
import sys

import pytest

from slotwise.model.errors import InputError, MissingExtraError
from slotwise.report import write_pictures, write_report
from slotwise.report.page import check_report


def test_pictures_are_written_as_png_and_svg(three_runs, tmp_path):
    """Each picture twice, each file begins as its format does."""
    written = write_pictures(three_runs, tmp_path / "pictures")
    assert len(written) == 12
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
        else:
            assert content.startswith(b"<svg")


def test_pictures_stand_beside_the_page_on_request(three_runs, tmp_path):
    """They are named after the page."""
    written = write_report(three_runs[:1], tmp_path / "r.html", pictures=True)
    names = {path.name for path in written}
    assert {"r.html", "r-jobs.png", "r-slots.svg"} <= names
    assert all(path.exists() for path in written)


def test_pictures_fit_a_window_of_1200_pixels(hostile_runs, tmp_path):
    """With long names in labels and legend there is room for the page's edges and its menu."""
    for path in write_pictures(hostile_runs, tmp_path):
        if path.suffix == ".svg":
            [width] = re.findall(r'^<svg[^>]* width="([0-9.]+)"', path.read_text("utf-8"))
            assert float(width) <= 1200 - 15 - 2 * (24 + 25) - 30


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_a_missing_extra_is_named(three_runs, tmp_path, monkeypatch, missing):
    """Without its libraries a report says what to install, and writes nothing."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"a report needs .*slotwise\[plots\]"):
        write_report(three_runs, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_no_runs_are_refused(tmp_path):
    """There must be something to report."""
    with pytest.raises(InputError, match="at least 1 run"):
        write_report([], tmp_path / "r.html")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "is a directory; name another file"),
        ("r.pdf", "a report is a web page; use a name that ends in .html"),
        ("report", "a report is a web page; use a name that ends in .html"),
        ("missing/r.html", "is missing; name a folder that exists"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(three_runs, tmp_path, name, told):
    """Before the run as after it, and nothing is written or made."""
    for refuse in (check_report, lambda path: write_report(three_runs[:1], path)):
        with pytest.raises(InputError, match=told):
            refuse(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_page_may_be_written_over(three_runs, tmp_path):
    """The name may end as old systems had it, in letters of any size."""
    path = tmp_path / "R.HTM"
    path.touch()
    for _ in range(2):
        check_report(path)
        write_report(three_runs[:1], path)
    path.write_text("<p>mine")
    with pytest.raises(InputError, match="was not written by slotwise; name another"):
        check_report(path)
    assert path.read_text() == "<p>mine"


def test_a_page_is_html_from_its_first_byte(three_runs, tmp_path):
    """So that browsers know it without a name."""
    path = tmp_path / "r.html"
    write_report(three_runs[:1], path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_tables_need_no_plots():
    """The package is imported without the libraries that draw."""
    code = "import sys, slotwise.report; print({'altair', 'vl_convert'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
