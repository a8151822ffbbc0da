"""The page in a browser: Debian's chromium, without a download."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.conftest import RunningServer, end_processes
from slotwise import Session
from slotwise.service.clients.transport import job_path
from waiting import until

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""The browser of the system."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SECONDS = 60_000.0
"""Milliseconds for which the page may take to show something on a busy machine."""

CONFIG = """
[[pools]]
name = "research"
weight = 2
slots_min = 1
[[pools]]
name = "dev"
[service]
listen = "127.0.0.1:{port}"
[service.users.ann]
[service.users.bob]
[service.users.eve]
roles = {{ dev = "submit" }}
[service.users.ada]
roles = {{ "*" = "admin" }}
"""

EVIL = "<img src=x onerror=document.title='owned'>"
"""A name that would be code if it were HTML."""


class NetworkServer(RunningServer):
    """A server at a port, with the tokens of two users."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "team.toml").write_text(CONFIG.format(port=self.port))
        super().__init__(folder, "--config", str(folder / "team.toml"))
        self.page = f"http://127.0.0.1:{self.port}/"

    def token(self, user: str) -> str:
        """A new token of a user."""
        found: str = self.post("/v1/tokens", {"user": user})["token"]
        return found


@pytest.fixture(scope="module")
def served() -> Iterator[NetworkServer]:
    """A server for all tests of this module."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        server = NetworkServer(Path(folder))
        try:
            yield server.start()  # type: ignore[misc]
        finally:
            server.end(signal.SIGKILL)
            end_processes(server.folder / "service")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of this module."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*sandbox, "--disable-gpu"]
        )
        yield launched
        launched.close()


Opener = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opener]:
    """Opens pages, each in a browser without cookies; no script of them may fail."""
    contexts, problems = [], list[str]()

    def open_page(url: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        context.set_default_timeout(SECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        page.goto(url)
        return page

    expect.set_options(timeout=SECONDS)
    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def ann(served: NetworkServer, opened: Opener) -> Any:
    """A page that ann has logged in to."""
    return logged_in(served, opened, "ann")


def logged_in(served: NetworkServer, opened: Opener, user: str) -> Any:
    """A page that a user has logged in to."""
    page = opened(served.page, viewport={"width": 1400, "height": 900})
    page.get_by_label("Your token").fill(served.token(user))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#link")).to_have_text("live")
    return page


def submit(page: Any, job: str, command: str, **fields: str) -> str:
    """Submit a command by the form as a job with this id; the id."""
    page.get_by_role("button", name="Submit").first.click()
    form = page.locator("#submit-form")
    form.get_by_label("Command").fill(command)
    for name, value in {"id": job, **fields}.items():
        field = form.locator(f"[name={name}]")
        field.select_option(value) if name == "pool" else field.fill(value)
    form.get_by_role("button", name="Submit").click()
    expect(page.locator("#news")).to_have_text(f"job {job} was submitted")
    return job


def test_a_wrong_token_is_refused_and_a_right_one_shows_the_page(
    served: NetworkServer, opened: Opener
) -> None:
    """The page says so, and nothing else is shown; logging out ends it."""
    page = opened(served.page)
    expect(page.locator("#page")).to_be_hidden()
    page.get_by_label("Your token").fill("slw_wrong_token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_contain_text("unknown, revoked or too old")
    expect(page.locator("#page")).to_be_hidden()
    page.get_by_label("Your token").fill(served.token("bob"))
    page.keyboard.press("Enter")
    expect(page.locator("#page")).to_be_visible()
    expect(page.locator("#place")).to_contain_text("bob at ")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Your token")).to_be_visible()
    page.reload()
    expect(page.locator("#page")).to_be_hidden()
    expect(page.get_by_label("Your token")).to_be_focused()


def test_a_job_is_submitted_watched_and_cancelled(served: NetworkServer, ann: Any) -> None:
    """Its output, its reason and its slot are shown, and another user's page has it as well."""
    before = submit(ann, "before", "sleep 60", pool="research")
    job = submit(ann, "watched", "echo begun; sleep 60", pool="research", memory="1 MiB")
    waits = submit(ann, "waits", "true", after=f"{job}, {before}")
    row = ann.locator(f"#own-jobs > li[data-key={job}]")
    expect(row.locator(".badge")).to_have_text("running")
    expect(row.locator(".tail")).to_have_text("begun")
    expect(row.get_by_role("progressbar")).to_have_attribute("aria-label", "0 of 1 task done")
    expect(row.locator(".eta")).to_have_text(re.compile("^Ends "))
    last = ann.locator(f"#own-jobs > li[data-key={waits}]")
    expect(last.locator(".badge")).to_have_text("waiting")
    expect(last.locator(".why")).to_contain_text("waits for jobs")
    expect(ann.locator("#pool-rows tr[data-key=research] td").first).to_have_text("2")
    expect(ann.locator("#facts")).to_contain_text("2/2 slots busy")
    row.locator("button.name").click()
    dialog = ann.get_by_role("dialog")
    expect(dialog.locator("#job-log")).to_contain_text("begun")
    expect(dialog.locator("#job-why")).to_contain_text("under fair")
    expect(dialog.locator("#job-facts")).to_contain_text("80 % sure")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog.locator("#job-state .badge")).to_have_text("cancelled")
    ann.keyboard.press("Escape")
    expect(row).to_have_count(0)
    expect(ann.locator("#own-ended")).to_contain_text(job)
    expect(last).to_have_count(0)  # It was cancelled with the job that it waited for.
    ann.get_by_role("button", name=f"Cancel job {before}").click()
    expect(ann.locator("#own-none")).to_be_visible()
    ann.locator("#filters [name=state]").select_option("")
    expect(ann.locator("#queue-rows tr").first.locator(".badge")).to_have_text("cancelled")


def test_what_would_happen_is_shown_before(
    served: NetworkServer, opened: Opener, ann: Any
) -> None:
    """Of a job in the form; of another weight, for administrators only."""
    expect(ann.locator("#what-if")).to_be_hidden()
    ann.get_by_role("button", name="Submit").first.click()
    form = ann.locator("#submit-form")
    form.get_by_label("Command").fill("sleep 9")
    form.get_by_role("button", name="When?").click()
    expect(ann.locator("#submit-answer")).to_contain_text("Job new starts")
    expect(ann.locator("#submit-answer")).to_contain_text("ends ")
    page = logged_in(served, opened, "ada")
    page.get_by_text("What if").click()
    panel = page.locator("#what-if-form")
    panel.get_by_label("Pool").select_option("research")
    panel.get_by_label("Weight").fill("3")
    panel.get_by_role("button", name="Compare").click()
    expect(page.locator("#what-if-answer")).to_contain_text("mean response")
    panel.get_by_label("Limit").fill("memroy=8")
    panel.get_by_role("button", name="Compare").click()
    expect(page.locator("#what-if-answer .wrong")).to_contain_text("did you mean 'memory'")
    panel.get_by_label("Limit").fill("memory = 8 GiB")
    panel.get_by_role("button", name="Compare").click()
    expect(page.locator("#what-if-answer")).to_contain_text("mean response")
    panel.get_by_label("Scheduler").fill("fare")
    panel.get_by_role("button", name="Compare").click()
    expect(page.locator("#what-if-answer .wrong")).to_contain_text("unknown scheduler")


def test_a_mistake_in_the_form_is_explained_where_it_was_made(ann: Any) -> None:
    """Nothing is submitted, and the form stays open."""
    ann.get_by_role("button", name="Submit").click()
    form = ann.locator("#submit-form")
    form.get_by_label("Command").fill("true")
    form.locator("[name=memory]").fill("a lot")
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_role("alert")).to_contain_text("memory")
    expect(form).to_be_visible()


def test_only_pools_are_offered_to_which_the_user_may_submit(
    served: NetworkServer, opened: Opener, ann: Any
) -> None:
    """All of them, for a user without stated roles."""
    for page, pools in (
        (ann, ["dev", "research"]),
        (logged_in(served, opened, "eve"), ["dev"]),
    ):
        page.get_by_role("button", name="Submit").first.click()
        assert (
            sorted(page.locator("#submit-form [name=pool] option").all_inner_texts()) == pools
        )


def test_names_and_output_of_users_are_text(served: NetworkServer, ann: Any) -> None:
    """Neither HTML nor escapes of a terminal are followed, in any part of the page."""
    print_evil = (
        f"printf '%b' '{EVIL.replace(chr(39), '')}\\033[31mred\\033]0;t\\007\\n\\007\\n'"
    )
    job = submit(ann, "evil", f"{print_evil}; sleep 60 # {EVIL}")
    row = ann.locator(f"#own-jobs > li[data-key={job}]")
    expect(row.locator(".name")).to_contain_text(EVIL)
    expect(row.locator(".tail")).to_contain_text("red")
    printed = row.locator(".tail").inner_text()
    assert "\x1b" not in printed
    assert "[31m" not in printed
    assert "<img src=x" in printed
    assert "\u2407" in printed
    row.locator("button.name").click()
    expect(ann.locator("#job-log")).to_contain_text("red")
    ann.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(ann.locator("#job-state .badge")).to_have_text("cancelled")
    expect(ann.locator("#news")).to_contain_text("cancelled")  # Else it comes between others.
    assert ann.locator("main img, dialog img").count() == 0
    ann.keyboard.press("Escape")
    for name in ("__proto__", "../jobs/evil-2"):
        submit(ann, name, "sleep 60")
        expect(ann.locator(f"#own-jobs > li[data-key='{name}']")).to_be_visible()
    submit(ann, "evil-2", "sleep 60")
    ann.get_by_role("button", name="Cancel job ../jobs/evil-2").click()
    expect(ann.locator("#news")).to_contain_text("cannot ask for a job with this id")
    ann.get_by_role("button", name="Cancel job __proto__").click()
    expect(ann.locator("#own-jobs > li[data-key=__proto__]")).to_have_count(0)
    assert served.job("evil-2")["state"] in ("queued", "running")
    for name in ("evil-2", "../jobs/evil-2"):
        served.post(job_path(name, "cancel"))
    assert "owned" not in ann.title()


def test_the_page_connects_again_after_a_restart_of_the_server(
    served: NetworkServer, ann: Any
) -> None:
    """It shows that the connection is lost, and logs in again by itself."""
    job = submit(ann, "stays", "sleep 60")
    row = ann.locator(f"#own-jobs > li[data-key={job}] .badge")
    expect(row).to_have_text("running")
    served.end()
    expect(ann.locator("#link")).to_have_text("reconnecting")
    expect(ann.locator("#link")).to_have_class("lost")
    served.start()
    expect(ann.locator("#link")).to_have_text("live")
    expect(row).to_have_text("running")
    ann.get_by_role("button", name=f"Cancel job {job}").click()
    expect(row).to_have_count(0)


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_its_window(served: NetworkServer, ann: Any, width: int) -> None:
    """Only tables scroll sideways, within themselves."""
    ann.set_viewport_size({"width": width, "height": 800})
    job = submit(ann, f"fits-{width}", f"sleep 60 # {'a long name ' * 20}")
    expect(ann.locator(f"#own-jobs > li[data-key={job}]")).to_be_visible()
    for part in ("#own", "#pools", "#times", "#queue", "#workers", "#submit-open", "#theme"):
        expect(ann.locator(part)).to_be_visible()
        box = ann.locator(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert ann.evaluate("document.documentElement.scrollWidth") <= width
    assert ann.evaluate("place.scrollWidth <= place.clientWidth"), "the user is cut"
    ann.locator(f"#own-jobs > li[data-key={job}] .name").click()
    assert ann.get_by_role("dialog").bounding_box()["width"] <= width
    ann.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(ann.locator("#job-state .badge")).to_have_text("cancelled")


def test_the_page_works_with_the_keyboard_alone(ann: Any) -> None:
    """Each control is reached by Tab, has a name and a visible focus."""
    ann.reload()
    expect(ann.locator("#link")).to_have_text("live")
    seen = list[str]()
    focused = """() => { const one = document.activeElement, style = getComputedStyle(one);
      return [one.id || one.name || one.className || one.tagName,
        one.ariaLabel || one.textContent.trim() || one.labels?.[0]?.textContent || "",
        one.matches(":focus-visible") && style.outlineStyle !== "none"]; }"""
    for _ in range(40):
        ann.keyboard.press("Tab")
        name, label, is_visible = ann.evaluate(focused)
        if name == "BODY":
            break
        assert label, f"{name} has no name"
        assert is_visible, f"the focus of {name} is not visible"
        seen.append(name)
    assert seen[0] == "skip"
    assert seen.index("submit-open") < seen.index("times-canvas") < seen.index("state")
    ann.locator("#submit-open").focus()
    ann.keyboard.press("Enter")
    expect(ann.locator("#submit-command")).to_be_focused()
    ann.keyboard.type("echo typed")
    ann.keyboard.press("Escape")
    expect(ann.locator("#submit-open")).to_be_focused()
    ann.locator("#times-canvas").focus()
    ann.keyboard.press("ArrowLeft")
    expect(ann.locator("#times-at")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))
    ann.locator("#queue-head button").first.focus()
    ann.keyboard.press("Enter")
    expect(ann.locator("#queue-head th").first).to_have_attribute("aria-sort", "ascending")


def test_colours_follow_the_browser_until_they_are_switched(
    served: NetworkServer, opened: Opener
) -> None:
    """The switch is kept. Nothing moves where the user wants less motion."""
    page = opened(served.page, color_scheme="dark", reduced_motion="reduce")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(18, 23, 29)"
    page.get_by_role("button", name="Switch to light").click()
    assert page.evaluate(paper) == "rgb(245, 247, 250)"
    page.reload()
    assert page.evaluate(paper) == "rgb(245, 247, 250)"
    durations = (
        "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).transitionDuration)"
    )
    assert set(page.evaluate(durations)) == {"0s"}


def nap(path: str) -> None:
    """Wait for a file."""
    print("napping", flush=True)
    until(Path(path).exists, 60)


def test_a_session_shows_its_calls_and_ends_with_them(opened: Opener, tmp_path: Path) -> None:
    """The link works once; the page can cancel, and says when the session is over."""
    with Session(2, pools={"a": 2, "b": 1}, keep=tmp_path / "run") as session:
        first, second = (session.submit(nap, str(tmp_path / name)) for name in ("x", "y"))
        link = session.page()
        page = opened(link)
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#own-jobs > li")).to_have_count(2)
        expect(page.locator("#own-jobs .tail").first).to_have_text("napping")
        expect(page.locator("#own-jobs .eta").first).to_have_text(re.compile("^Ends "))
        expect(page.locator("#submit-open")).to_be_hidden()
        page.locator("#what-if summary").click()
        page.get_by_label("Weight").fill("3")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#what-if-answer td").first).to_have_text("mean response")
        page.get_by_role("button", name="Cancel job call-2").click()
        expect(page.locator("#own-jobs > li")).to_have_count(1)
        until(second.cancelled)
        (tmp_path / "x").touch()
        first.result(60)
        expect(page.locator("#own-ended .done")).to_have_count(1)
        assert session.page().partition("/login")[0] == link.partition("/login")[0]
        again = opened(link)
        expect(again.get_by_text("has been used")).to_be_visible()
    expect(page.locator("#link")).to_have_text("reconnecting")
