"""The users of a service: their roles, tokens, limits and jobs, as clients on a network see."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from starlette.responses import JSONResponse
from uvicorn.server import ServerState

from service.accounts import ANN as ACCOUNT
from service.accounts import folder_of, missing, serving
from service.teams import CONFIG, Team, running_team
from service.test_telemetry import checked
from slotwise.core.errors import InputError
from slotwise.service.clients.client import Client
from slotwise.service.clients.credentials import Credential
from slotwise.service.clients.transport import ServerRefusedError, Transport, job_path
from slotwise.service.http import listening
from slotwise.service.settings import NetworkSettings
from slotwise.service.wire import frame
from waiting import until


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A server with users."""
    with running_team(tmp_path_factory.mktemp("team")) as found:
        yield found


def refused(kind: str) -> Any:
    """Expect the refusal of a server, of this kind."""
    return pytest.raises(ServerRefusedError, match="") if not kind else _Refused(kind)


class _Refused:
    """A block that a server refuses."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        assert isinstance(error, ServerRefusedError), error
        assert error.kind == self.kind
        return True


# Jobs of users.


def test_who_asks_has_a_name_and_roles(team: Team) -> None:
    """Those of the configuration."""
    assert team.transport("max").get("/v1/whoami") == {
        "user": "max",
        "roles": {"science": "manage", "dev": "submit"},
        "admin": False,
    }
    assert team.server.get("/v1/whoami")["admin"]


def test_what_others_run_is_hidden(team: Team) -> None:
    """Their rows are not; who manages the pool sees all."""
    (job,) = team.submit(
        "ann", {"command": "echo secret; exit 3", "pool": "vision", "attempts": 1}
    )
    done = team.transport("ann").get(job_path(job, "wait"), timeout=60)
    assert (done["user"], done["name"], done["code"]) == ("ann", "echo secret; exit 3", 3)
    for path in (job_path(job), job_path(job, "wait"), f"/v1/jobs?ids={job}"):
        answer = team.ask("GET", path, user="bob")
        assert answer.status == 200
        assert b"secret" not in answer.body
        row = answer.json["jobs"][0] if "jobs" in answer.json else answer.json
        assert (row["user"], row["pool"], row["state"]) == ("ann", "vision", "failed")
        assert (row["name"], row["reason"], row["code"]) == ("", "", None)
        assert "tasks_listed" not in row
    for user in ("max", "ada"):
        assert team.transport(user).get(job_path(job))["name"] == "echo secret; exit 3"
        frames = team.transport(user).stream(job_path(job, "logs"))
        assert b"".join(part for _, parts in frames for part in parts) == b"secret\n"
    for part in ("logs", "explain"):
        with refused("forbidden"):
            list(team.transport("bob").stream(job_path(job, part)))


def test_only_who_may_changes_a_job(team: Team) -> None:
    """Its user, or one who manages its pool."""
    (job,) = team.submit("ann", {"command": "true", "pool": "research"}, hold=True)
    for action in ("cancel", "hold", "release", "change", "forget"):
        with refused("forbidden"):
            team.transport("bob").post(job_path(job, action), {})
    assert team.transport("ann").get(job_path(job))["state"] == "held"
    assert team.transport("max").post(job_path(job, "release"))["id"] == job
    assert team.transport("ann").get(job_path(job, "wait"), timeout=60)["state"] == "done"
    team.transport("max").post(job_path(job, "forget"))


def test_a_user_asks_about_its_pools_and_administrators_about_all(team: Team) -> None:
    """How often is limited, but not for administrators."""
    job = {"command": "true", "pool": "vision"}
    found = team.transport("ann").post("/v1/what-if", {"jobs": [job]})
    assert [one["job"] for one in found["jobs"]] == found["new"] == ["new"]
    with refused("forbidden"):
        team.transport("ann").post("/v1/what-if", {"jobs": [{**job, "pool": "dev"}]})
    changes = {"pools": {"dev": {"weight": 3}}, "scheduler": "fair", "hosts": [HOST]}
    for key, value in changes.items():
        with refused("forbidden"):
            team.transport("max").post("/v1/what-if", {"jobs": [job], key: value})
        assert team.transport("ada").post("/v1/what-if", {key: value})["new"] == []
    with refused("limit"):
        team.transport("bob").post("/v1/what-if", {"jobs": [job] * 101})
    with refused("limit"):
        for _ in range(60):
            team.transport("ann").post("/v1/what-if", {"jobs": [job]})


HOST = {"name": "h9", "slots": 4}


def test_a_user_submits_to_its_pools(team: Team) -> None:
    """Also when it moves a job; nothing of what is refused is left."""
    known = len(team.server.get("/v1/jobs", limit=1000)["jobs"])
    for pool in ("dev", "default"):
        with refused("forbidden"):
            team.submit(
                "ann",
                {"command": "true", "pool": "research"},
                {"command": "true", "pool": pool},
            )
    assert len(team.server.get("/v1/jobs", limit=1000)["jobs"]) == known
    (job,) = team.submit("ann", {"command": "true", "pool": "research"}, hold=True)
    ann = team.transport("ann")
    with refused("forbidden"):
        ann.post(job_path(job, "change"), {"pool": "dev"})
    assert ann.post(job_path(job, "change"), {"pool": "vision"})["pool"] == "vision"
    ann.post(job_path(job, "cancel"))


def test_the_only_pool_of_a_user_is_that_of_its_jobs(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that name no pool; calls, too."""
    (job,) = team.submit("kim", {"command": "true"})
    assert team.server.job(job)["pool"] == "vision"
    monkeypatch.setenv("SSL_CERT_FILE", team.ca)
    monkeypatch.setenv("SLOTWISE_TOKEN", team.token("kim"))
    with Client(team.url) as client:
        call = client.submit(abs, -1)
        assert call.result(60) == 1
    assert team.server.job(call.job)["pool"] == "vision"
    with refused("forbidden"):
        team.submit("kim", {"command": "true", "pool": "dev"})


def test_only_an_administrator_names_another_user(team: Team) -> None:
    """In the submission, in an entry, or in the options of calls."""
    entry = {"command": "true", "pool": "research"}
    with refused("forbidden"):
        team.submit("ann", entry, user="bob")
    with refused("forbidden"):
        team.submit("max", {**entry, "user": "bob"})
    opening = {"op": "open", "stream": "s", "binding": {"user": "bob", "pool": "research"}}
    answer = team.transport("ann").post_frames("/v1/calls", frame(opening))
    assert "may not submit for user 'bob'" in answer["refused"]["s"]
    (job,) = team.submit("ada", entry, user="bob")
    assert team.transport("bob").get(job_path(job, "wait"), timeout=60)["name"] == "true"
    with pytest.raises(InputError, match="'zoe' is not a user"):
        team.submit("ada", entry, user="zoe")
    database = team.folder / "service" / "store.db"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        row = store.execute("SELECT user, account FROM jobs WHERE id = ?", (job,)).fetchone()
    assert row == ("bob", "nobody")


def test_keys_of_a_user_are_its_own(team: Team) -> None:
    """The same key of another user is another submission."""
    entry = {"command": "true", "pool": "research"}
    (first,) = team.submit("ann", entry, key="k")
    assert team.submit("ann", entry, key="k") == [first]
    (second,) = team.submit("bob", entry, key="k")
    assert second != first
    team.server.wait(second)  # Bob may have few jobs that are not over.
    assert team.server.submit(entry, key="k") not in ([first], [second])


def test_streams_and_clients_of_a_user_are_its_own(team: Team) -> None:
    """Another one gets no result, adds no call, and does not learn that they exist."""

    def send(user: str, *headers: dict[str, Any]) -> Any:
        frames = [frame(one, [b"no pickle"] * (one["op"] == "call")) for one in headers]
        return team.transport(user).post_frames("/v1/calls", b"".join(frames))

    def opening(key: str) -> dict[str, Any]:
        binding = {"pool": "research", "name": f"of {key}"}
        return {"op": "open", "stream": key, "binding": binding, "grows": True, "client": "c"}

    call = {"op": "call", "stream": "s", "number": 0, "inputs": [None]}
    job = send("ann", opening("s"), call)["jobs"]["s"]
    with pytest.raises(InputError, match="'s' is not open"):
        send("bob", call)
    other = send("bob", opening("s"), call)["jobs"]["s"]
    assert other != job
    until(lambda: team.server.job(job)["tasks_done"] == 1)
    body = {"client": "c", "calls": {"s": [0]}, "jobs": []}
    for user, wanted in (("ann", job), ("bob", other)):
        news = team.transport(user).stream("/v1/results", body)
        found = next(header for header, _ in news if "stream" in header)
        assert (found["stream"], found["number"]) == ("s", 0)
        news.close()
        send(user, {"op": "close", "stream": "s"})
        until(lambda: team.server.job(wanted)["state"] == "failed")  # noqa: B023
    full = team.server.job(job)["stream"]
    foreign = {"client": "c", "calls": {full: [0], "s": [0]}, "jobs": [job]}
    with closing(team.transport("bob").stream("/v1/results", foreign)) as news:
        assert next(news)[0].keys() == {"beat"}
        header, _ = next(news)
        assert header["stream"] == "s"  # Its own, which raised, too.
    with closing(team.transport("ada").stream("/v1/results", foreign)) as news:
        assert [next(news)[0].get("stream") for _ in range(2)] == [None, full]


def test_output_of_others_is_no_word_of_a_command(team: Team) -> None:
    """To wait for a job of another user is possible."""
    (job,) = team.submit("ann", {"command": "true", "pool": "research", "output": "o"})
    words = ["echo", {"result_of": job}]
    with refused("forbidden"):
        team.submit("bob", {"command": words})
    (after,) = team.submit("bob", {"command": "true", "after": [job]})
    assert team.transport("bob").get(job_path(after, "wait"), timeout=60)["state"] == "done"


def test_jobs_of_a_user_are_limited(team: Team) -> None:
    """Others are not; room comes with each job that is over."""
    held = team.submit("bob", *[{"command": "true"}] * 5, hold=True)
    for _ in range(2):
        with refused("limit"):
            team.submit("bob", {"command": "true"})
    opening = {"op": "open", "stream": "more", "binding": {}}
    answer = team.transport("bob").post_frames("/v1/calls", frame(opening))
    assert "may have 5" in answer["refused"]["more"]
    team.submit("ann", {"command": "true", "pool": "research"})
    bob = team.transport("bob")
    bob.post(job_path(held[0], "cancel"))
    until(lambda: team.server.job(held[0])["state"] == "cancelled")
    held += team.submit("bob", {"command": "true"}, hold=True)
    for job in held[1:]:
        bob.post(job_path(job, "cancel"))


def test_only_an_administrator_manages_the_server(team: Team) -> None:
    """Others do not learn where it runs."""
    for user in ("ann", "max"):
        for path in ("/v1/reload", "/v1/stop"):
            with refused("forbidden"):
                team.transport(user).post(path)
        assert not {"pid", "folder", "changes"} & team.transport(user).get("/v1").keys()
    assert team.transport("ada").get("/v1")["folder"] == str(team.folder / "service")
    assert team.transport("ada").post("/v1/reload") == {"changes": []}


def test_tokens_are_made_listed_and_revoked(team: Team) -> None:
    """By an administrator those of all, by a user its own; their text is shown once."""
    made = team.transport("ann").post("/v1/tokens", {"days": 1})
    ann = team.transport("ann", made["token"])
    checked(made, "/v1/tokens", "post", "201")
    checked(ann.get("/v1/tokens"), "/v1/tokens")
    checked(ann.get("/v1/whoami"), "/v1/whoami")
    checked(ann.get("/v1"), "/v1")
    checked(ann.post("/v1/codes"), "/v1/codes", "post", "201")
    listed = ann.get("/v1/tokens")["tokens"]
    assert {one["user"] for one in listed} == {"ann"}
    assert made["token"] not in json.dumps(listed)
    for days in (None, 2):
        assert ann.post("/v1/tokens", {"days": days})["expires"] == made["expires"]
    assert ann.post("/v1/tokens", {"days": 0.5})["expires"] < made["expires"]
    with refused("forbidden"):
        ann.post("/v1/tokens", {"user": "bob"})
    assert {"ann", "ada"} <= {
        one["user"] for one in team.transport("ada").get("/v1/tokens")["tokens"]
    }
    for wrong in ({"user": "zoe"}, {"user": ["ann"]}, {"user": "ann", "days": 0}):
        with pytest.raises(InputError, match=r"zoe|ann|days"):
            team.transport("ada").post("/v1/tokens", wrong)
    assert team.ask("POST", f"/v1/tokens/{made['id']}/revoke", user="bob").status == 404
    with closing(ann.stream("/v1/results", {"client": "c"})) as news:
        assert "beat" in next(news)[0]
        ann.post(f"/v1/tokens/{made['id']}/revoke")
        with refused("unauthorized"):
            ann.get("/v1/whoami")


def test_an_answer_that_lasts_ends_with_its_token(team: Team) -> None:
    """At the next part of it."""
    made = team.transport("ann").post("/v1/tokens", {})
    command = "echo early; until [ -e go ]; do sleep 0.05; done; echo late"
    (job,) = team.submit(
        "ann", {"command": command, "pool": "research", "cwd": str(team.folder)}
    )
    ann = team.transport("ann", made["token"])
    frames = ann.stream(job_path(job, "logs"), follow=1)
    assert next(frames)[1] == [b"early\n"]
    team.transport("ada").post(f"/v1/tokens/{made['id']}/revoke")
    (team.folder / "go").touch()
    assert list(frames) == []
    until(lambda: team.server.job(job)["state"] == "done")


def test_a_client_of_another_host(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the calls, maps and commands of any client, and names folders of the server."""
    monkeypatch.setenv("SLOTWISE_TOKEN", team.token("ann"))
    monkeypatch.setenv("SSL_CERT_FILE", team.ca)
    with Client(team.url) as client:
        executor = client.executor(pool="research")
        first = executor.submit(pow, 2, 10)
        assert first.result(60) == 1024
        assert list(executor.map(abs, range(-20, 0), chunksize=5)) == list(range(20, 0, -1))
        with pytest.raises(InputError, match="output is missing"):
            client.command("true", id="c", pool="research")
    with Client(team.url) as client:
        assert client.job(first.job).result(60)[0] == 1024
    assert team.transport("bob").get(job_path(first.job))["stream"] is None
    (job,) = team.submit(
        "ann", {"command": "echo $HOME $A $USER", "pool": "research"}, environ={"A": "b"}
    )
    team.transport("ann").get(job_path(job, "wait"), timeout=60)
    frames = team.transport("ann").stream(job_path(job, "logs"))
    printed = b"".join(part for _, parts in frames for part in parts).decode().split()
    assert printed == [
        os.path.expanduser("~root" if os.geteuid() == 0 else "~"),
        "b",
        printed[2],
    ]


def test_a_user_at_a_shell(team: Team, tmp_path: Path) -> None:
    """From the token that an administrator makes to the first job, and the link to the page."""
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "SSL_CERT_FILE": "/none"}
    environ.pop("SLOTWISE_TOKEN", None)

    def slotwise(*words: str, given: str = "", **more: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "slotwise", *words],
            input=given,
            env={**environ, "SLOTWISE_SERVER": team.url, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    own = {"SLOTWISE_SERVER": team.server.url}
    code, token, _ = slotwise("token", "create", "ann", "--lasts", "90d", **own)
    assert code == 0
    assert token.startswith("slw_")
    code, _, error = slotwise("list")
    assert (code, f"slotwise login {team.url}" in error) == (2, True)
    assert "unknown" in slotwise("login", team.url, "--ca", team.ca, given="slw_x_y\n")[2]
    assert (
        f"`slotwise login {team.url} --ca FILE`" in slotwise("login", team.url, given=token)[2]
    )
    assert (
        "none.pem' cannot be" in slotwise("login", team.url, "--ca", "none.pem", given=token)[2]
    )
    plain = team.url.replace("https", "http")
    assert f"is at {team.url}" in slotwise("login", plain, given=token)[2]
    code, _, error = slotwise("login", team.url, "--ca", team.ca, given=token)
    assert (code, "you are ann" in error) == (0, True)
    stale = slotwise("list", SLOTWISE_TOKEN="slw_x_y")[2]
    assert "unknown, revoked or too old; SLOTWISE_TOKEN states it" in stale
    words = ("--pool", "vision", "--env", "GREETING", "--env", "B=c", "--cwd", str(team.folder))
    code, printed, _ = slotwise(
        "submit",
        "-f",
        *words,
        "--",
        "echo $GREETING $B $(pwd) $SECRET",
        GREETING="hi",
        SECRET="s",
    )
    assert (code, printed) == (0, f"hi c {team.folder}\n")
    assert " ann " in slotwise("list", "--all", "--user", "ann")[1]
    assert "to pool 'dev', but to 'science'" in slotwise("submit", "--pool", "dev", "true")[2]
    folder, printed = os.getcwd(), slotwise("submit", "-f", *words[:2], "--cwd", ".", "pwd")[1]
    assert printed == f"{folder}\n"
    assert "process" not in slotwise("status")[1]
    code, url, _ = slotwise("page")
    assert url.startswith(f"{team.url}/login?code=")
    assert team.ask("GET", url.removeprefix(team.url).strip()).status == 200
    id = token.split("_")[1]
    listed = slotwise("token", "list")[1]
    assert id in listed
    assert "ends in 90 d" in listed
    assert "revoked" in slotwise("token", "revoke", id)[2]
    assert "unknown, revoked or too old" in slotwise("list")[2]
    assert slotwise("logout", team.url)[0] == 0
    assert slotwise("logout", team.url)[0] == 2


@pytest.mark.slow
def test_a_connection_that_the_server_has_closed_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TLS, too; its client does not notice."""
    monkeypatch.setattr(listening, "IDLE_SECONDS", 1)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = tmp_path / "server.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)

    def ask(listener: listening.NetworkListener) -> list[Any]:
        transport = Transport(listener.url, Credential("t", str(tmp_path / "ca.pem")))
        found = [transport.get("/"), transport.get("/")]
        until(lambda: not listener.count)
        return [*found, transport.post("/")]

    async def run() -> list[Any]:
        listener = listening.NetworkListener(NetworkSettings("127.0.0.1", 0, certificate))
        listener.start(JSONResponse({}), ServerState(), 10)
        try:
            return await asyncio.to_thread(ask, listener)
        finally:
            listener.stop()

    assert asyncio.run(run()) == [{}, {}, {}]


def test_changes_are_recorded(team: Team) -> None:
    """With who, from where, what and how it ended; reading is not."""
    team.ask("GET", "/v1/jobs", user="ann")
    team.ask("POST", "/v1/jobs/none/cancel", user="ann")
    team.ask("GET", "/v1/jobs", {"Authorization": "Bearer \x1b[31m"})
    (job,) = team.submit("ann", {"command": "true", "pool": "vision"})
    path = team.folder / "service" / "audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    until(lambda: f'["{job}"]' in path.read_text())  # It is written after the answer.
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    mine = next(one for one in reversed(lines) if one.get("jobs") == [job])
    assert (mine["user"], mine["address"], mine["action"]) == (
        "ann",
        "127.0.0.1",
        "POST /v1/jobs",
    )
    assert (mine["outcome"], mine["pool"]) == ("done", "vision")
    assert abs(mine["at"] - time.time()) < 60
    outcomes = {(one["action"], one["outcome"]) for one in lines}
    assert ("POST /v1/jobs/none/cancel", "failed") in outcomes
    assert ("GET /v1/jobs", "refused") in outcomes
    assert ("GET /v1/jobs", "done") not in outcomes


def test_users_can_change_while_the_server_runs(tmp_path: Path) -> None:
    """A user that is removed cannot ask any more; its jobs continue, also after a restart."""
    with running_team(tmp_path) as team:
        (job,) = team.submit("ann", {"command": "sleep 100", "pool": "research"})
        ann = team.transport("ann")
        without = CONFIG.replace("[service.users.ann]", "[service.users.zoe]").format(
            folder=tmp_path
        )
        (tmp_path / "slotwise.toml").write_text(without)
        changes = team.server.post("/v1/reload")["changes"]
        rows = team.server.get("/v1/tokens")["tokens"]
        assert {one["user"] for one in rows if not one["has_user"]} == {"ann"}
        assert {"user zoe is new", "user ann is removed: its tokens are of no use"} == set(
            changes
        )
        with refused("unauthorized"):
            ann.get("/v1/whoami")
        assert team.transport("zoe").get("/v1/whoami")["user"] == "zoe"
        until(lambda: team.server.job(job)["state"] == "running")
        team.server.restart()
        team.find()
        assert team.server.job(job)["user"] == "ann"
        assert team.transport("zoe").get("/v1/whoami")["user"] == "zoe"
        team.server.post(job_path(job, "cancel"))
        other = without.replace("127.0.0.1:0", "127.0.0.1:1")
        (tmp_path / "slotwise.toml").write_text(other)
        with pytest.raises(InputError, match="takes a restart"):
            team.server.post("/v1/reload")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_work_from_a_network_runs_as_the_account_of_its_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its home, and with what its account may read; nobody can name root."""
    with serving() as server, folder_of(ACCOUNT, {"secret": "of ann"}) as folder:
        parts = urlsplit(server.post("/v1/codes")["url"])
        url = f"{parts.scheme}://{parts.netloc}"

        def asking(user: str) -> Transport:
            return Transport(
                url, Credential(server.post("/v1/tokens", {"user": user})["token"])
            )

        def printed(by: Transport, command: str, **more: Any) -> bytes:
            (job,) = by.post("/v1/jobs", {"jobs": [{"command": command}], **more})["jobs"]
            by.get(job_path(job["id"], "wait"), timeout=60)
            frames = by.stream(job_path(job["id"], "logs"))
            return b"".join(part for _, parts in frames for part in parts)

        ann, bob = asking("ann"), asking("bob")
        command = f"id -un; echo $HOME $USER; cat {folder}/secret"
        home = pwd.getpwnam(ACCOUNT).pw_dir
        wanted = f"{ACCOUNT}\n{home} {ACCOUNT}\nof ann"
        given = {"folder": "/", "environ": {"HOME": "/root"}}
        assert printed(ann, command, **given).decode() == wanted
        assert b"of ann" not in printed(bob, command, folder="/")
        for name in ("root", pwd.getpwuid(os.geteuid()).pw_name):
            with refused("forbidden"):
                ann.post("/v1/jobs", {"jobs": [{"command": "id"}], "user": name})
        monkeypatch.setenv(
            "SLOTWISE_TOKEN", server.post("/v1/tokens", {"user": "ann"})["token"]
        )
        with Client(url) as client:
            assert client.submit(os.geteuid).result(60) == pwd.getpwnam(ACCOUNT).pw_uid
