"""What a server shows to other tools: metrics, health, its dashboard and its description."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.routing import Route

from service.conftest import RunningServer
from slotwise.service.http.server import ServiceApp
from slotwise.service.http.telemetry import description, telemetry_routes
from slotwise.service.http.token_routes import TokenRoutes
from slotwise.service.users.guard import GuardRules
from waiting import until

ROOT = Path(__file__).parents[2]
PATHS = ("/v1", "/metrics", "/health", "/ready")
"""The beginnings of paths that are described; others are those of the page."""

OF_GUARD = {
    *(("/v1/login", "post"), ("/v1/logout", "post")),
    *(("/v1/whoami", "get"), ("/v1/codes", "post")),
}
"""What is answered before the routes."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def answered(server: RunningServer, path: str, method: str = "GET") -> tuple[int, str]:
    """The status and the text of an answer."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(server.url.removeprefix("unix:"))
    connection.request(method, path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def metrics_of(server: RunningServer) -> Samples:
    """The samples by name and labels."""
    status, text = answered(server, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """The value of a sample; 0 if there is none."""
    return found.get((f"slotwise_{name}", tuple(sorted(labels.items()))), 0.0)


@pytest.fixture
def shared(make_server: Callable[..., RunningServer], tmp_path: Path) -> RunningServer:
    """A server with two pools, of which one has a guarantee."""
    config = tmp_path / "slotwise.toml"
    config.write_text(
        'scheduler = "fair"\nresources = {gpu = 2}\n'
        "[pools]\nteam = {weight = 3, slots_min = 1}\nrest = 1\n"
    )
    return make_server("--config", str(config))


def test_metrics_say_who_holds_slots_and_what_has_ended(shared: RunningServer) -> None:
    """Used, fair and guaranteed slots by pool, jobs by state, ends, waits and requests."""
    ended, failed = shared.submit(
        {"command": ["true"], "pool": "team"},
        {"command": ["false"], "pool": "rest", "attempts": 1},
    )
    shared.wait(ended)
    shared.wait(failed)
    long = {"command": ["sleep", "60"], "pool": "rest", "tasks": 2}
    (running,) = shared.submit(long)
    (queued,) = shared.submit({**long, "slots": 2})
    (held,) = shared.submit({"command": ["true"], "pool": "team"}, hold=True)
    (waiting,) = shared.submit({"command": ["true"], "pool": "team", "after": [running]})
    until(lambda: shared.job(running)["tasks_running"] == 2)
    fair = {"pool": "rest", "kind": "task"}  # It is computed twice a second.
    until(lambda: value(metrics_of(shared), "pool_slots_fair", **fair) == 2)
    found = metrics_of(shared)
    assert value(found, "slots", kind="task") == 2
    assert value(found, "resource_amount", resource="gpu") == 2
    (host,) = shared.get("/v1/workers")["workers"]
    assert host["resources"]["gpu"] == {"total": 2, "used": 0}
    assert value(found, "pool_slots_used", pool="rest", kind="task") == 2
    assert value(found, "pool_slots_used", pool="team", kind="task") == 0
    assert value(found, "pool_slots_fairness_gap", pool="rest", kind="task") == 0
    assert value(found, "jobs", pool="rest", state="running") == 1
    assert value(found, "jobs", pool="rest", state="queued") == 1
    assert value(found, "jobs", pool="team", state="held") == 1
    assert value(found, "jobs", pool="team", state="queued") == 1
    assert {one["name"]: one["queued"] for one in shared.get("/v1/pools")["pools"]} == {
        "team": 1,
        "rest": 1,
    }
    assert value(found, "jobs_ended_total", pool="team", state="done") == 1
    assert value(found, "jobs_ended_total", pool="rest", state="failed") == 1
    assert value(found, "queue_wait_seconds_count", pool="rest") == 2
    assert value(found, "queue_wait_seconds_bucket", pool="rest", le="+Inf") == 2
    assert value(found, "attempts_ended_total", outcome="failed") == 1
    assert value(found, "decisions_total", kind="launch") == 4
    assert value(found, "scheduling_seconds_count") > 0
    assert value(found, "store_commit_seconds_sum") > 0
    assert value(found, "http_requests_total", method="POST", status="201") == 5
    for job in (waiting, running, queued, held):
        shared.post(f"/v1/jobs/{job}/cancel")


def test_the_dashboard_asks_for_metrics_that_exist(server: RunningServer) -> None:
    """All names in the queries of the file for Grafana are those of metrics."""
    board = json.loads((ROOT / "docs" / "grafana" / "slotwise.json").read_text())
    queries = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    queries += [one["query"] for one in board["templating"]["list"]]
    asked = set(re.findall(r"\b(?:slotwise|process)_\w+", " ".join(queries)))
    _, text = answered(server, "/metrics")
    families = list(text_string_to_metric_families(text))
    ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    ends["summary"] = ends["histogram"][1:]
    exist = {one.name + end for one in families for end in ends.get(one.type, ("",))}
    assert len(asked) > 12
    assert asked <= exist


def test_a_server_that_starts_or_stops_is_alive_and_not_ready() -> None:
    """Neither of the two says more than that."""

    def answers(is_closed: bool) -> dict[str, tuple[int, bytes]]:
        routes = telemetry_routes(MagicMock(), lambda: is_closed)
        found = {}
        for route in routes[1:3]:
            request = Request({"type": "http", "method": "GET", "headers": []})
            response = asyncio.run(route.endpoint(request))
            found[route.path] = response.status_code, response.body
        return found

    ok = 200, b"ok\n"
    assert answers(True) == {"/health": ok, "/ready": (503, b"not ready\n")}
    assert answers(False) == {"/health": ok, "/ready": ok}


def test_only_health_needs_no_login() -> None:
    """Metrics have names of pools."""
    rules = GuardRules()
    assert rules.is_public("/health")
    assert rules.is_public("/ready")
    assert not rules.is_public("/metrics")
    assert not rules.is_public("/v1/openapi.json")


# The description of the interface.


def routes_of_server() -> set[tuple[str, str]]:
    """The paths and methods of the routes that are described."""
    engine = MagicMock()
    tokens = TokenRoutes(engine, MagicMock()).routes()
    found = set()
    for route in ServiceApp(engine, list, bool).app(*tokens).routes:
        if isinstance(route, Route) and route.path.startswith(PATHS):
            path = route.path.replace(":path", "")
            methods = {method.lower() for method in route.methods or ()} - {"head"}
            found |= {(path, method) for method in methods}
    return found


def test_the_description_has_the_routes_and_no_others() -> None:
    """Paths and methods; each operation has an id of its own, and each reference a target."""
    plain = description()
    described = {
        (path, method): operation
        for path, item in plain["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert described.keys() == routes_of_server() | OF_GUARD
    assert len({one["operationId"] for one in described.values()}) == len(described)
    for reference in re.findall(r'"\$ref": "#/(.*?)"', json.dumps(plain)):
        target: Any = plain
        for name in reference.split("/"):
            target = target[name]
    for name, schema in plain["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert schema.get("required", []) == [
            one for one in schema.get("properties", {}) if one in schema.get("required", [])
        ], name


def checked(answer: object, path: str, method: str = "get", status: str = "200") -> None:
    """Assert that an answer is as described, with no key that is not."""
    plain = description()
    response = plain["paths"][path][method]["responses"][status]
    if "$ref" in response:
        response = plain["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": plain["components"]}).validate(answer)
    if isinstance(answer, dict) and "$ref" in schema:
        known = plain["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
        assert answer.keys() <= known.keys()


def test_real_answers_are_as_described(server: RunningServer) -> None:
    """Of jobs that run, wait, are held, done and failed, and of errors."""
    entry = {"command": ["sleep", "60"], "name": "long", "tasks": 2}
    body = {
        "jobs": [entry, {"command": ["false"], "attempts": 1}],
        "folder": "/",
        "environ": {},
    }
    accepted = server.post("/v1/jobs", body)
    checked(accepted, "/v1/jobs", "post", "201")
    running, failed = (one["id"] for one in accepted["jobs"])
    server.post(f"/v1/jobs/{running}/change", {"priority": "high"})
    until(lambda: server.job(running)["tasks_running"])
    (held,) = server.submit({"command": ["true"], "deadline": {"at": 4e9}}, hold=True)
    checked(server.get(f"/v1/jobs/{running}"), "/v1/jobs/{job}")
    checked(server.get(f"/v1/jobs/{running}/explain"), "/v1/jobs/{job}/explain")
    asked = server.post("/v1/what-if", {"jobs": [{"command": "true"}], "folder": "/"})
    checked(asked, "/v1/what-if", "post")
    checked(server.post(f"/v1/jobs/{running}/cancel"), "/v1/jobs/{job}/cancel", "post")
    checked(server.wait(failed), "/v1/jobs/{job}/wait")
    checked(server.get("/v1/jobs"), "/v1/jobs")
    for path in ("/v1", "/v1/pools", "/v1/workers", "/v1/openapi.json", "/v1/whoami"):
        checked(server.get(path), path)
    checked(server.get("/v1/tokens"), "/v1/tokens")
    checked(server.post("/v1/codes"), "/v1/codes", "post", "201")
    server.wait(running)
    checked(server.post(f"/v1/jobs/{running}/forget"), "/v1/jobs/{job}/forget", "post")
    checked(server.post("/v1/reload"), "/v1/reload", "post")
    status, text = answered(server, "/v1/jobs/none")
    assert status == 404
    checked(json.loads(text), "/v1/jobs/{job}", status="default")
    server.post(f"/v1/jobs/{held}/cancel")
