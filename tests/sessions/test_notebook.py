"""A session and its futures in a notebook: tables, a live display, and interrupted cells."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.small_calls import PATIENCE, released
from slotwise import Calls, Future, Job, Phase, Pool, Session, Tasks
from slotwise.sessions import notebook
from waiting import until

HOSTILE = "<script>alert(1)</script>&"


def wait_for_file(path: str) -> str:
    """A call that lasts until a file exists."""
    while not Path(path).exists():
        time.sleep(0.005)
    return path


def fail(task: int) -> None:
    """A call that raises."""
    raise ValueError(HOSTILE)


class Notebook:
    """IPython with a kernel, as far as sessions use it; it records what it shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.heard: dict[str, list[Any]] = {"pre_run_cell": [], "post_run_cell": []}
        self.events = SimpleNamespace(
            register=lambda name, handler: self.heard[name].append(handler),
            unregister=lambda name, handler: self.heard[name].remove(handler),
        )
        self.display = SimpleNamespace(HTML=str, display=self._display)
        self.shell = SimpleNamespace(
            kernel=object(),
            events=self.events,
            user_ns={"_oh": {}},
            user_ns_hidden={},
            displayhook=SimpleNamespace(_=""),
        )

    def get_ipython(self) -> object:
        """The shell."""
        return self.shell

    def show_last(self, number: int, value: Any) -> None:
        """Show the value of the last expression of a cell, and keep it as IPython does."""
        value._ipython_display_()
        self.shell.displayhook._ = value
        self.shell.user_ns |= {"_": value, f"_{number}": value}
        self.shell.user_ns_hidden |= {"_": value, f"_{number}": value}
        self.shell.user_ns["_oh"][number] = value

    def begin_cell(self) -> None:
        """Begin a cell."""
        for handler in self.heard["pre_run_cell"]:
            handler(None)

    def end_cell(self, error: BaseException | None = None) -> None:
        """End a cell, perhaps with an exception."""
        for handler in self.heard["post_run_cell"]:
            handler(SimpleNamespace(error_in_exec=error))

    def _display(self, content: str, display_id: bool) -> Any:
        self.shown.append(content)
        return SimpleNamespace(update=self.shown.append)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A notebook whose displays are redrawn at once."""
    made = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setattr(notebook, "REDRAW_SECONDS", 0.001)
    return made


def test_a_session_shows_a_table_of_its_jobs(tmp_path: Path) -> None:
    """Name, pool, state, tasks, slots and reason; then what is over."""
    with Session(2, "fair", pools=[Pool("narrow", slots_max={"task": 1})]) as session:
        with (
            session.executor(name="both", pool="narrow") as executor,
            released(tmp_path / "go") as go,
        ):
            first, second = (executor.submit(wait_for_file, go) for _ in range(2))
            until(first.running)
            reason = "pool &#x27;narrow&#x27; holds its max share of 1"
            until(lambda: reason in session._repr_html_())
            html = session._repr_html_()
            assert "(fair, open): 1 of 2 slots held, 1 job not over, 0 over</p>" in html
            for cell in (">both<", ">narrow<", "</span> running<", "</span>0/2<", ">1<"):
                assert cell in html
            assert "task 1</strong>: " in second._repr_html_()
            assert " waiting</span></p>" in second._repr_html_()
        assert second.result(PATIENCE) == go
    assert "0 of 2 slots held, 0 jobs not over, 1 over</p>" in session._repr_html_()


def test_a_cell_that_shows_its_session_may_be_run_again(shell: Notebook) -> None:
    """The earlier session ends with its workers, and its display says so."""
    user = shell.shell.user_ns
    earlier = []
    for number in range(3):
        shell.begin_cell()
        user["session"] = Session(1)
        shell.show_last(number, user["session"])
        earlier.append(user["session"]._intake)
        shell.end_cell()
    *earlier, last = earlier
    until(lambda: all(intake.is_ended for intake in earlier))
    assert not last.is_ended
    assert user["session"].submit(abs, -1).result(PATIENCE) == 1
    until(lambda: sum("closed" in shown for shown in shell.shown) >= 2)
    user.pop("session").close()


def test_a_session_without_a_name_stays_an_output(shell: Notebook) -> None:
    """The user refers to it by `_` or `Out` only."""
    shell.begin_cell()
    shell.show_last(1, Session(1))
    shell.end_cell()
    assert shell.shell.user_ns["_oh"][1].submit(abs, -1).result(PATIENCE) == 1
    shell.shell.user_ns["_"].close()


def test_names_of_users_stay_text(tmp_path: Path) -> None:
    """No name or message becomes an element."""
    phases = (Phase("p", Tasks(1)),)
    with Session(1, "fair", attempts_max=1) as session:
        call = session.executor(name=HOSTILE, pool=HOSTILE).submit(
            wait_for_file, str(tmp_path / "go")
        )
        html = session._repr_html_() + call._repr_html_()
        (tmp_path / "go").touch()
        broken = session.run(Calls(Job("broken", phases), fail))
        broken.exception(PATIENCE)
        html += broken._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html


def test_a_future_says_its_job_state_and_reason(tmp_path: Path) -> None:
    """As text, without asking the loop."""
    with Session(1, "fair") as session, released(tmp_path / "go") as go:
        first = session.submit(wait_for_file, go)
        until(first.running)
        other, later = session.submit(len, "a"), session.submit(repr, first)
        whole = session.run(Job("asleep", (Phase("p", Tasks(1, 0.01)),)))
        bad = session.submit(int, "x")
        assert repr(first) == "<Future of job call, task 0: running>"
        assert repr(other) == "<Future of job call-2, task 0: waiting>"
        assert repr(later) == "<Future of a call: waiting: for the results of other calls>"
        assert repr(whole) == "<Future of job asleep: waiting>"
        other.cancel()
        assert repr(other) == "<Future of job call-2, task 0: cancelled>"
        Path(go).touch()
        bad.exception(PATIENCE)
        assert repr(bad).startswith("<Future of job call-3, task 0: failed: ValueError: ")
        later.result(PATIENCE)
    assert repr(first) == "<Future of job call, task 0: done>"


def test_a_session_is_redrawn_while_it_runs(shell: Notebook, tmp_path: Path) -> None:
    """In one display; it ends with the session."""
    with Session(1, "fair") as session:
        session._ipython_display_()
        call = session.executor(name="waits").submit(wait_for_file, str(tmp_path / "go"))
        until(lambda: any(">waits<" in html for html in shell.shown))
        (tmp_path / "go").touch()
        call.result(PATIENCE)
    assert "closed): 0 of " in shell.shown[-1]
    count = len(shell.shown)
    session.close()
    assert len(shell.shown) == count


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_interrupted_cell_cancels_its_own_jobs(
    shell: Notebook, tmp_path: Path, interrupt: BaseException
) -> None:
    """Jobs of other cells continue, also those of cells that ended with another error."""
    with Session(2, "fair") as session:
        with session.executor() as executor, released(tmp_path / "go") as go:
            earlier = executor.submit(wait_for_file, go)
            shell.end_cell(ValueError())
            shell.begin_cell()
            done = session.submit(len, "abc")
            assert done.result(PATIENCE) == 3
            mine: list[Future[Any]] = [
                executor.submit(wait_for_file, go),
                session.submit(repr, earlier),
            ]
            mine.append(session.run(Job("asleep", (Phase("p", Tasks(1, 1000.0)),))))
            shell.end_cell(interrupt)
            assert [future.cancelled() for future in mine] == [True] * 3
            shell.end_cell(KeyboardInterrupt())  # Of a cell that began before the session.
            assert not earlier.cancelled()
            shell.begin_cell()
            later = executor.submit(wait_for_file, go)
            shell.end_cell()
        assert (earlier.result(PATIENCE), later.result(PATIENCE)) == (go, go)
        assert done.result() == 3
    assert shell.heard == {"pre_run_cell": [], "post_run_cell": []}


CELLS = """
import signal, os, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
run = lambda text: shell.run_cell(text, silent=False)
assert run("import slotwise, time, os; s = slotwise.Session(2)").success
assert run("a = s.submit(time.sleep, 0.3); s").success
result = run("b = s.submit(time.sleep, 1000); os.kill(os.getpid(), 2); time.sleep(1000)")
assert isinstance(result.error_in_exec, KeyboardInterrupt)
assert run("print('b', b.cancelled()); print('a', a.result(60)); s.close()").success
"""


@pytest.mark.slow
def test_a_real_ipython_interrupts_a_cell(tmp_path: Path) -> None:
    """SIGINT while a cell waits; the job of the cell before it continues."""
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", CELLS],
        capture_output=True,
        text=True,
        check=False,
        env={"IPYTHONDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "b True" in done.stdout
    assert "a None" in done.stdout
    assert "Out[0]: <Session of 2 slots under flex: open>" in done.stdout


def test_completion_shows_only_what_is_for_users() -> None:
    """The methods that a session needs have names that completion leaves out."""
    own = {name for name in vars(Future) if not name.startswith("_")}
    assert own == {"cancel", "eta", "exception", "explain", "progress", "result"}
