"""The files of a report: the page, its pictures, and names that are refused."""

import re
import subprocess
import sys

import pytest
import vl_convert

import slotwise
from slotwise.core.errors import InputError, MissingExtraError
from slotwise.insight.report.page import check_report, write_report
from slotwise.insight.report.pictures.gallery import draw_all
from slotwise.insight.report.reported import scene_of
from slotwise.results import Result


def test_charts_are_valid(three_runs):
    """Every chart follows the schema of Vega-Lite; reports themselves do not check it."""
    for picture in draw_all(scene_of(three_runs)):
        assert picture.chart.to_dict(validate=True)["$schema"].endswith(".json")


def test_pictures_are_written_as_png_and_svg(hostile_pictures):
    """Each picture twice; each file begins as its format does."""
    assert len(hostile_pictures) == 12
    for path in hostile_pictures:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
        else:
            assert content.startswith(b"<svg")


def test_pictures_are_written_next_to_the_page_on_request(three_runs, tmp_path):
    """They are named after the page."""
    written = write_report(three_runs[:1], tmp_path / "r.html", pictures=True)
    names = {path.name for path in written}
    assert {"r.html", "r-jobs.png", "r-slots.svg"} <= names
    assert all(path.exists() for path in written)


def test_pictures_fit_a_window_of_1200_pixels(hostile_pictures):
    """With long names in labels and legend there is room for the page's edges and its menu."""
    for path in hostile_pictures:
        if path.suffix == ".svg":
            [width] = re.findall(r'^<svg[^>]* width="([0-9.]+)"', path.read_text("utf-8"))
            assert float(width) <= 1200 - 15 - 2 * (24 + 25) - 30


def test_long_names_keep_their_ends(make):
    """Names that differ only there are different in axes and legends."""
    names = [f"nightly-report-of-all-sales-2026-{month}" for month in ("01", "02")]
    pictures = {p.name: p for p in draw_all(scene_of([make("fair", names)]))}
    for name in ("jobs", "held-by-job"):
        svg = vl_convert.vegalite_to_svg(pictures[name].spec())
        texts = {*re.findall(r">([^<]*)</text>", svg)}
        assert {"nightly-r…s-2026-01", "nightly-r…s-2026-02"} <= texts


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_a_missing_extra_is_named(three_runs, tmp_path, monkeypatch, missing):
    """Without its libraries a report says what to install, and writes nothing."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"a report needs .*slotwise\[plots\]"):
        write_report(three_runs, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_a_report_without_runs_is_refused(tmp_path):
    """A report needs at least one run."""
    with pytest.raises(InputError, match="at least 1 run"):
        write_report([], tmp_path / "r.html")


def test_what_is_no_list_of_results_is_refused(three_runs, tmp_path):
    """Also a single result that is not in a list; nothing is written."""
    result = Result.of_log(three_runs[0].log)
    for wrong in (5, [5], "ab", result, [result, 5]):
        with pytest.raises(InputError, match=r"expected a list of results, such as \[result\]"):
            slotwise.write_report(wrong, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
    assert slotwise.write_report(iter([result]), tmp_path / "r.html") == [tmp_path / "r.html"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is a directory; name another file"),
        ("r.pdf", "a report is a web page; use a name that ends in .html"),
        ("report", "a report is a web page; use a name that ends in .html"),
        ("missing/r.html", "is missing; name a folder that exists"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(three_runs, tmp_path, name, message):
    """Before the run and after it; no file or folder is created."""
    for refuse in (check_report, lambda path: write_report(three_runs[:1], path)):
        with pytest.raises(InputError, match=message):
            refuse(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_page_may_be_overwritten(three_runs, tmp_path):
    """The suffix may be `.htm`, in upper case as well."""
    path = tmp_path / "R.HTM"
    path.touch()
    for _ in range(2):
        check_report(path)
        write_report(three_runs[:1], path)
    path.write_text("<p>mine")
    with pytest.raises(InputError, match="was not written by slotwise; name another"):
        check_report(path)
    assert path.read_text() == "<p>mine"


def test_a_page_begins_with_its_doctype(three_runs, tmp_path):
    """Browsers recognize it without a file name."""
    path = tmp_path / "r.html"
    write_report(three_runs[:1], path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_tables_need_no_plots():
    """The package is imported without the libraries that draw."""
    drawing = "{'altair', 'vl_convert'}"
    code = f"import sys, slotwise.insight.report; print({drawing} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
