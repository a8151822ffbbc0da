"""The page: complete, offline, safe whatever users wrote, and readable at any size."""

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from slotwise.backends.simulated.backend import Fault
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.log import Log
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.report.page import page as page_text
from slotwise.insight.report.page import write_report
from slotwise.insight.report.pictures import comparison, usage
from slotwise.insight.report.reported import scene_of
from slotwise.insight.report.tables import FAILED_BECAUSE, job_columns
from slotwise.insight.report.text import (
    BAD,
    BAR,
    BEST,
    DARK,
    INK,
    MUTED,
    RULE,
    job_colours,
    printable,
)

ADDRESSES = ("src", "href", "action", "data", "srcset", "poster", "background")


class Page(HTMLParser):
    """What a browser would see: tags, text outside of scripts, and the scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.scripts = [], [], []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Take down a tag."""
        self.tags.append((tag, dict(attributes)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        """Leave a script."""
        self._in_script = False

    def handle_data(self, data):
        """Take down text."""
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.texts.append(data)

    @property
    def pictures(self):
        """The specifications that the last script draws."""
        start = self.scripts[-1].index("{")
        return json.JSONDecoder().raw_decode(self.scripts[-1][start:])[0]

    def rows(self, picture, name):
        """The rows of a picture, unpacked as the script does."""
        table = self.pictures[picture]["datasets"][name]
        return [
            {
                field: words[value] if words else value
                for field, words, value in zip(
                    table["fields"], table["words"], row, strict=True
                )
            }
            for row in table["rows"]
        ]


def always(launch):
    """Every task fails."""
    return Fault("no luck", after=0.5)


@pytest.fixture(scope="module")
def plain(three_runs, tmp_path_factory):
    """The text of the page of three schedulers."""
    path = tmp_path_factory.mktemp("report") / "r.html"
    assert write_report(three_runs, path) == [path]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hostile(hostile_runs, tmp_path_factory):
    """The text of the page of the jobs with hostile names."""
    path = tmp_path_factory.mktemp("report") / "r.html"
    write_report(hostile_runs, path)
    return path.read_text(encoding="utf-8")


def texts_of(runs):
    """The texts of the page of these runs, without its pictures over time."""
    scene = scene_of(runs)
    drawn = [comparison.draw(scene)] if len(runs) > 1 else []
    specs = [{"datasets": {}} for _ in drawn]
    return Page(page_text(scene, drawn, specs, bundle="")).texts


def test_the_page_fetches_nothing(plain):
    """No element has an address, the style imports nothing, no spec names a schema or url."""
    page = Page(plain)
    for _tag, attributes in page.tags:
        assert not attributes.keys() & set(ADDRESSES)
    assert not {"link", "iframe", "img", "base", "object"} & {tag for tag, _ in page.tags}
    own = plain.replace(page.scripts[0], "")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", own)


def test_the_bundle_is_embedded_once(three_runs, real_bundle, tmp_path, monkeypatch):
    """Two scripts: the bundle, and the pictures with a few lines that draw them."""
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: real_bundle)
    path = tmp_path / "r.html"
    write_report(three_runs, path)
    text = path.read_text(encoding="utf-8")
    first, last = Page(text).scripts
    assert first == real_bundle
    assert last.startswith("const PICTURES = ")
    assert len(text) < 1_500_000


def test_every_job_and_scheduler_is_named(plain, three_runs):
    """Outside of the scripts too, so that the page can be read and searched without them."""
    texts = Page(plain).texts
    for run in three_runs:
        assert run.label in texts
        assert all(job in texts for job in run.outcome.jobs)


def test_every_picture_has_a_place_and_a_sentence(plain):
    """The pictures of the last script are those that the page has room for."""
    page = Page(plain)
    places = [attributes["id"] for tag, attributes in page.tags if "id" in attributes]
    assert places == list(page.pictures)
    assert set(places) == {
        "comparison", "responses", "jobs", "held-by-job", "held-by-pool", "slots",
    }  # fmt: skip


def test_a_job_has_one_colour_everywhere(plain):
    """In every picture and under every scheduler."""
    colours = set()
    text = json.dumps(Page(plain).pictures)
    for domain, colour_range in re.findall(
        r'"domain": (\["q1"[^]]*\]), "range": (\[[^]]*\])', text
    ):
        colours.add((domain, colour_range))
    assert len(colours) == 1


def test_time_axes_are_the_same_for_all_schedulers(plain):
    """Every picture over time has one and the same domain."""
    pictures = Page(plain).pictures
    found = set()
    for name in ("jobs", "held-by-job", "held-by-pool", "slots"):
        text = json.dumps(pictures[name])
        found |= set(re.findall(r'"clamp": true, "domain": (\[[^]]*\])', text))
    assert len(found) == 1


def test_hostile_names_stay_text(hostile, hostile_names, hostile_reason):
    """Names and reasons that look like markup are shown as they are and close no script."""
    text = hostile
    page = Page(text)
    assert len(page.scripts) == 2
    assert not [tag for tag, _ in page.tags if tag in ("img", "b")]
    assert text.count("<script") == text.count("</script") == 2
    shown = "".join(page.texts)
    for name in [*hostile_names, hostile_reason]:
        assert name in shown
    assert {row["job"] for row in page.rows("jobs", "jobs0")} == set(hostile_names)


def test_hostile_names_are_drawn(hostile_pictures, hostile_names):
    """No name gets into an expression: every picture is drawn, with the names as its text."""
    by_name = {path.name: path for path in hostile_pictures}
    drawn = unescape(by_name["jobs.svg"].read_text(encoding="utf-8"))
    for name in hostile_names:
        assert name[:8] in drawn


def test_a_failed_job_has_its_reason(hostile, hostile_reason):
    """The reason is in the table, and the attempts are marked in the picture by slot."""
    page = Page(hostile)
    assert page.texts.count(hostile_reason) == 2
    assert {"×", "†"} <= {row["mark"] for row in page.rows("slots", "slots0bad")}


def test_a_run_without_a_completed_job_is_not_the_best(make, hostile_names, tmp_path):
    """None of its metrics is 0, none of its bars is marked, and all pictures are drawn."""
    job = hostile_names[2]
    runs = [make("fifo", [job], fault=always), make("fair", [job]), make("flex", [job])]
    path = tmp_path / "r.html"
    write_report(runs, path, pictures=True)
    page = Page(path.read_text(encoding="utf-8"))
    for picture in ("value", "response_mean", "makespan"):
        rows = page.rows("comparison", picture)
        assert [row["best"] for row in rows] == [False, True, True]
        assert rows[0]["text"] == "–"


def test_a_traceback_opens_below_its_last_line(make, hostile_names, tmp_path):
    """The tables name the task and the error; the page has the whole reason, collapsed."""
    traceback = [
        "map task 0 (in.txt, bytes 0-10): Traceback (most recent call last):",
        '  File "user.py", line 3, in <map>',
        "ValueError: bad",
    ]
    job, reason = hostile_names[2], "\n".join(traceback)
    run = make("fifo", [job], fault=lambda launch: Fault(reason, after=0.5))
    path = tmp_path / "r.html"
    write_report([run], path)
    page = Page(path.read_text(encoding="utf-8"))
    short = "map task 0 (in.txt, bytes 0-10): ValueError: bad"
    assert page.texts.count(short) == 1
    assert page.texts.count(reason) == 1
    [life] = page.rows("jobs", "jobs0")
    assert life["failed"] == short
    assert job_columns(run)[FAILED_BECAUSE] == [short]


def test_the_page_warns_of_a_machine_whose_load_changed(three_runs):
    """Live runs that measured other work for the same jobs cannot be compared."""
    one = replace(three_runs[0], backend="live")
    metrics = one.outcome.metrics | {"work_seconds": 2 * one.outcome.metrics["work_seconds"]}
    other = replace(one, outcome=replace(one.outcome, metrics=metrics))
    for runs, warned in (([one, one], False), ([one, other], True)):
        texts = texts_of(runs)
        assert "work (slot-seconds)" in texts
        assert any("the load of the machine differed" in text for text in texts) is warned


def test_live_and_simulated_runs_are_not_compared(three_runs):
    """Each backend has its best runs, in the table and in the picture, and the page says so."""
    live = [
        replace(run, backend="live", outcome=scaled(run.outcome, 2.0)) for run in three_runs[:2]
    ]
    best = comparison.draw(scene_of([*live, *three_runs[:2]])).rows["makespan"]
    alone = comparison.draw(scene_of(three_runs[:2])).rows["makespan"]
    assert [row["best"] for row in best] == [row["best"] for row in alone] * 2
    assert "best of live and of simulated runs" in " ".join(texts_of([*live, *three_runs]))
    assert "of live and of simulated" not in " ".join(texts_of(three_runs))


def scaled(outcome, factor):
    """The outcome of a run whose makespan is this number of times as long."""
    metrics = outcome.metrics | {"makespan": factor * outcome.metrics["makespan"]}
    return replace(outcome, metrics=metrics)


def test_the_title_names_each_scheduler_once(three_runs):
    """Six runs of three schedulers have a short title; their number follows below it."""
    live = [replace(run, backend="live") for run in three_runs]
    texts = texts_of([*live, *three_runs])
    assert texts.count("fifo, fair and flex compared") == 1
    assert "slotwise: fifo, fair and flex compared" in texts
    assert any(text.startswith("6 runs · 3 jobs") for text in texts)
    many = [replace(three_runs[0], label=f"s{number}") for number in range(5)]
    assert "5 schedulers compared" in texts_of(many)


def test_a_bound_says_for_which_runs_it_holds(three_runs):
    """For the same work it holds for all; where work was measured again, only for its run."""
    one, other = (
        replace(run, outcome=replace(run.outcome, bound=bound))
        for run, bound in zip(three_runs, (40.0, 42.0), strict=False)
    )
    text = " ".join(texts_of([one, one]))
    assert "no scheduler can do better with these tasks" in text
    text = " ".join(texts_of([one, other]))
    assert "a proven lower bound for its own run" in text
    assert "Each lower bound applies to the work of its own run" in text
    assert "with these tasks" not in text


def interrupted(run):
    """The same run, stopped in the middle."""
    log = Log(run.log.header, run.log.turns[: len(run.log.turns) // 2])
    return replace(run, log=log, outcome=MetricsCollector.of_log(log).outcome())


def test_an_interrupted_run_is_marked(plain, three_runs):
    """At the top of the page, and wherever its name is."""
    cut = interrupted(three_runs[0])
    texts = texts_of([cut, three_runs[1]])
    [notice] = [text for text in texts if "was interrupted" in text]
    assert notice.startswith("fifo was interrupted: its record ends at 1")
    assert "of 3 jobs had ended" in notice
    assert "fifo (interrupted)" in texts
    assert not any("interrupted" in text for text in Page(plain).texts)


def test_the_page_explains_the_longest_waits(plain, hostile, hostile_names):
    """For each run, with the jobs that held the slots; names of users stay text."""
    texts = Page(plain).texts
    assert "Waits and their causes" in texts
    [wait] = [t for t in texts if "fifo serves jobs in order" in t and "pool0, from" in t]
    assert "behind" in wait
    page = Page(hostile)
    assert not [tag for tag, _ in page.tags if tag in ("img", "alert")]
    assert any(hostile_names[1] in text and "behind" in text for text in page.texts)


def test_pictures_have_what_the_script_for_narrow_screens_changes(plain):
    """Plots of a fixed width, labels of a fixed width, and panels with an axis to copy."""
    pictures = Page(plain).pictures
    first, *others = pictures["comparison"]["hconcat"]
    assert first["layer"][0]["encoding"]["y"]["axis"]["minExtent"] > 100
    assert all(panel["width"] > 100 for panel in (first, *others))
    for name in ("jobs", "held-by-job", "held-by-pool", "slots"):
        assert all(panel["width"] > 100 for panel in pictures[name]["vconcat"])
    assert pictures["responses"]["width"] > 100
    assert all("legend" in spec["config"] for spec in pictures.values())


def test_the_page_is_dark_where_the_reader_wants_it(plain):
    """Its style sheet follows the preference, and its script gives pictures other colours."""
    page = Page(plain)
    assert "(prefers-color-scheme: dark)" in plain.partition("</style>")[0]
    script = page.scripts[-1]
    assert 'matchMedia("(prefers-color-scheme: dark)")' in script
    dark = json.JSONDecoder().raw_decode(script, script.index("DARK = ") + len("DARK = "))[0]
    assert dark == DARK
    assert {INK, MUTED, RULE, BAD, BAR, BEST, "white"} == set(dark)


def test_weaker_colours_are_transparent_and_not_white(make, tmp_path):
    """A tint towards white would be a stronger colour on a dark page."""
    path = tmp_path / "r.html"
    write_report([make("fair", ["q1", "q2"], fault=always)], path)
    page = Page(path.read_text(encoding="utf-8"))
    colours = set(job_colours(["q1", "q2"]).values())
    runs, bad = page.rows("jobs", "runs0"), page.rows("slots", "slots0bad")
    assert {row["colour"] for row in [*runs, *bad]} == colours
    assert {row["shade"] for row in runs} <= {0.44, 0.58, 0.72, 0.86, 1.0}
    paper, bars = page.pictures["jobs"]["vconcat"][0]["layer"][1:3]
    assert paper["mark"]["fill"] == "white"
    assert bars["encoding"]["fillOpacity"]["field"] == "shade"


def test_failures_come_first(plain, hostile, hostile_names, hostile_reason):
    """Before all pictures and tables: which jobs failed in each run, when, and why."""
    page = Page(hostile)
    before = hostile.partition('id="comparison"')[0]
    assert before.count("1 failed job<") == 2
    texts = page.texts[: page.texts.index("Comparison of schedulers")]
    assert texts.count(printable(hostile_names[2])) == 2
    assert sum(" failed at " in text and hostile_reason in text for text in texts) == 2
    assert "Failed jobs" not in Page(plain).texts


@pytest.mark.parametrize(
    "reason",
    [
        "task 0 of job q1: the last lines of its stderr:\nbad\nexit code 3; see /r/q1/0.4.err",
        'map 0: Traceback:\n  File "u.py", line 3\nValueError: no\nits output: /r/q1/0.4.out',
        "the worker was killed; see /r/q1/0.4.err",
    ],
)
def test_a_failure_names_the_file_of_its_attempt(make, tmp_path, reason):
    """The whole message is shown, which ends with the file if the attempt has printed."""
    path = tmp_path / "r.html"
    write_report([make("fifo", ["q1"], fault=lambda launch: Fault(reason, after=0.5))], path)
    texts = Page(path.read_text(encoding="utf-8")).texts
    assert any(text.endswith(reason) for text in texts[: texts.index("Metrics")])


def test_failures_are_in_order_of_time(make, tmp_path):
    """The first may be the cause of the others."""

    def fault(launch):
        return Fault("no luck", after=0.01 if launch.phase.job == "q2" else 1.0)

    path = tmp_path / "r.html"
    write_report([make("fair", ["q1", "q2"], fault=fault)], path)
    texts = Page(path.read_text(encoding="utf-8")).texts
    assert [text for text in texts[: texts.index("Metrics")] if text in ("q1", "q2")] == [
        "q2",
        "q1",
    ]


def test_the_first_failures_are_always_in_view(make, tmp_path):
    """The others are folded, and so are messages of several lines where jobs are many."""
    names = [f"q{number:02}" for number in range(11)]
    path = tmp_path / "r.html"
    write_report([make("fifo", names, fault=lambda launch: Fault("no\nluck", after=0.5))], path)
    text = path.read_text(encoding="utf-8")
    section = text[text.index("Failed jobs") : text.index("Metrics")]
    seen, _, folded = section.partition("<summary>3 more</summary>")
    assert seen.count("<li>") == 8
    assert folded.count("<li>") == 3
    assert "<details open>" not in section


def test_the_first_column_stays_in_view(plain):
    """Tables scroll below it, also where the page is narrow."""
    style = plain.partition("</style>")[0]
    assert ".table :is(th, td):first-child { position: sticky; left: 0;" in style
    body = plain.partition("<script>")[0]
    assert body.count('<div class="table"><table>') == body.count("<table>") > 0


def test_one_run_alone_is_a_report_too(three_runs, tmp_path):
    """With one scheduler there is nothing to compare, and no empty picture."""
    path = tmp_path / "r.html"
    write_report(three_runs[:1], path)
    assert "comparison" not in Page(path.read_text(encoding="utf-8")).pictures


def test_unresponsive_hosts_are_drawn(make, tmp_path):
    """A line in each slot of the host, or one in its row where hosts are many."""
    outages = (Outage("h1", 2.0, 4.0),)
    path = tmp_path / "r.html"
    for hosts, rows in ((2, ["h1 · 1", "h1 · 2"]), (40, ["h1"])):
        write_report([make("fair", ["q1", "q2"], hosts=hosts, outages=outages)], path)
        page = Page(path.read_text(encoding="utf-8"))
        lines = page.rows("slots", "slots0silent")
        assert [line["row"] for line in lines] == rows
        assert {(line["host"], line["start"], line["end"]) for line in lines} == {("h1", 2, 6)}
        assert "A dark line along a row" in " ".join(page.texts)
    write_report([make("fair", ["q1"])], path)
    page = Page(path.read_text(encoding="utf-8"))
    assert "A dark line along a row" not in " ".join(page.texts)


def test_many_slots_and_jobs_stay_small(make, tmp_path):
    """Hundreds of slots become rows of hosts; of many jobs some are shown, and it says so."""
    runs = [make("fair", [f"j{number}" for number in range(90)], hosts=130, slots=2)]
    path = tmp_path / "r.html"
    write_report(runs, path)
    page = Page(path.read_text(encoding="utf-8"))
    assert len({row["row"] for row in page.rows("slots", "slots0")}) <= 60
    assert "Only the 60 jobs with the longest response are shown" in " ".join(page.texts)
    assert len(page.rows("jobs", "jobs0")) == 60


def test_many_attempts_in_a_slot_become_cells(make, tmp_path, monkeypatch):
    """Each unsuccessful one is counted in a cross."""
    monkeypatch.setattr(usage, "MAX_BARS", 0)
    monkeypatch.setattr(usage, "MIN_BARS", 0)
    path = tmp_path / "r.html"
    write_report([make("fair", ["q1", "q2"], fault=always)], path)
    page = Page(path.read_text(encoding="utf-8"))
    cells, crosses = page.rows("slots", "slots0"), page.rows("slots", "slots0bad")
    assert {cell["row"] for cell in cells} == {"h0 · 1", "h0 · 2", "h1 · 1", "h1 · 2"}
    counts = [int(cross["count"].partition(" ")[0]) for cross in crosses]
    attempts = make("fair", ["q1", "q2"], fault=always).outcome.metrics["attempts"]
    assert sum(counts) == sum(attempts.values())
    assert "Each row is a slot." in " ".join(page.texts)


def test_runs_of_the_same_name_are_distinguished(three_runs):
    """By their backend where it differs, otherwise by a number."""
    live = replace(three_runs[0], backend="live")
    texts = texts_of([three_runs[0], live, live])
    assert {"fifo (simulated)", "fifo (live)", "fifo (live) #2"} <= set(texts)
