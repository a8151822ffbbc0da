"""When jobs of a server start and end: routes, lists, page, rights, by forecasts of a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_forecasts import fake_forecasts
from service.asgi import Answer, asked
from service.conftest import end_processes
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.hub import Hub
from slotwise.service.http.server import ServiceApp
from slotwise.service.page.page import EngineSource
from slotwise.service.settings import Settings
from slotwise.service.store.store import Store
from slotwise.service.users.access import User
from waiting import until

Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A server without its process: one job runs, one waits, one is held."""
    folder = tmp_path_factory.mktemp("eta")
    with fake_forecasts() as made, Store(folder) as store:
        found = Engine(store, Settings(slots=1), 1, Hub())
        assert len(made) == 1  # From the start.
        try:
            yield found
        finally:
            found.leave(0.0)
            end_processes(folder)
        assert made[0].is_closed


@pytest.fixture(scope="module")
def ask(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Ask the server as the account that it runs as, or as another user."""
    server = ServiceApp(engine, list, bool)
    server.is_restoring = False
    app = server.app()

    def ask(method: str, path: str, body: Any = b"", user: User = engine.own) -> Answer:
        async def of_user(scope: Any, receive: Any, send: Any) -> None:
            scope["state"]["user"] = user
            await app(scope, receive, send)

        return asked(of_user, method, path, body=body)

    jobs = [{"id": name, "command": ["sleep", "60"]} for name in ("first", "second")]
    folder = str(tmp_path_factory.mktemp("work"))
    assert ask("POST", "/v1/jobs", {"jobs": jobs, "folder": folder}).status == 201
    held = {"jobs": [{"id": "third", "command": "true"}], "folder": folder, "hold": True}
    assert ask("POST", "/v1/jobs", held).status == 201
    until(lambda: ask("GET", "/v1/jobs/first").json["state"] == "running")
    return ask


def test_a_request_and_lists_have_the_forecast_of_a_job(ask: Ask) -> None:
    """In Unix seconds, and how old it is; not of a job that is held."""
    answer = ask("GET", "/v1/jobs/second/eta").json
    eta, now = answer["eta"], time.time()
    assert (answer["id"], answer["state"]) == ("second", "queued")
    assert (eta["confidence"], eta["past"], eta["of_another"]) == (0.8, 3, 0)
    assert now - 5 < eta["at"] <= answer["now"] + 0.001
    assert [eta["end"][name] - eta["at"] for name in ("low", "median", "high")] == (
        pytest.approx([20, 40, 60], abs=0.1)
    )
    rows = {row["id"]: row["eta"] for row in ask("GET", "/v1/jobs").json["jobs"]}
    assert rows["third"] is None
    assert rows["first"]["end"]["high"] == pytest.approx(now + 60, abs=30)
    began = time.monotonic()
    held = ask("GET", "/v1/jobs/third/eta").json
    assert (held["state"], held["eta"]) == ("held", None)
    assert time.monotonic() - began < 5  # It does not wait for what does not come.


def test_every_user_sees_forecasts_and_nothing_else(ask: Ask) -> None:
    """As with the rows of lists, of jobs of others, too."""
    other = User("other", "nobody")
    assert ask("GET", "/v1/jobs/first/explain", user=other).status == 403
    answer = ask("GET", "/v1/jobs/first/eta", user=other).json
    assert answer.keys() == {"id", "state", "now", "eta"}
    assert answer["eta"]["end"]
    assert ask("GET", "/v1/jobs/none/eta").status == 404
    assert ask("GET", "/v1/jobs/first/eta?timeout=x").status == 400


def test_the_page_has_the_ranges_of_own_jobs(engine: Engine, ask: Ask) -> None:
    """In whole seconds, so that little is sent again."""
    own = EngineSource(engine, lambda: "running").snapshot([engine.own.name]).own
    rows, now = own[engine.own.name], time.time()
    assert rows["second"]["eta"]["start"]["high"] == pytest.approx(now + 30, abs=10)
    assert isinstance(rows["second"]["eta"]["end"]["low"], int)
    assert "eta" not in rows["third"]


def test_a_job_that_is_over_has_no_forecast(ask: Ask, tmp_path: Path) -> None:
    """At once."""
    job = {"jobs": [{"id": "over", "command": "true"}], "folder": str(tmp_path), "hold": True}
    assert ask("POST", "/v1/jobs", job).status == 201
    assert ask("POST", "/v1/jobs/over/cancel").status == 200
    until(lambda: ask("GET", "/v1/jobs/over").json["state"] == "cancelled")
    found = ask("GET", "/v1/jobs/over/eta").json
    assert (found["state"], found["eta"]) == ("cancelled", None)
