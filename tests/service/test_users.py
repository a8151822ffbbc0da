"""The users of a service: their roles, tokens, limits and jobs, as clients on a network see."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
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
from slotwise.cli.serve import settings_of
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.pools import Pool
from slotwise.service.clients.client import Client
from slotwise.service.clients.credentials import (
    Credential,
    credential_for,
    store_credential,
    tokens_file,
)
from slotwise.service.clients.transport import ServerRefusedError, Transport, job_path
from slotwise.service.engine.rights import JobQuota, LimitError, plain_name, scoped
from slotwise.service.http import listening
from slotwise.service.settings import NetworkSettings, Settings
from slotwise.service.store.store import Store
from slotwise.service.users.access import (
    MAX_WHOLE,
    ForbiddenError,
    Role,
    User,
    own_user,
    roles_of,
)
from slotwise.service.users.audit import AuditLog
from slotwise.service.users.limits import KEYS_MAX, RateLimit, group_of
from slotwise.service.users.logins import Logins
from slotwise.service.users.tokens import TOKENS_MAX, Tokens
from slotwise.service.wire import ServerPlace, frame, server_place
from waiting import until

ANN = User("ann", "ann", {"research": Role.SUBMIT, "dev": Role.MANAGE})


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


# Roles, names and limits.


def test_a_role_holds_in_a_pool_and_below() -> None:
    """A higher one includes those before it."""
    pools = (Pool("dev"), Pool("vision", parent="dev"), Pool("research"))
    settings = Settings(pools=pools)
    assert settings.pools_of("vision") == ("vision", "dev")
    assert ANN.may(Role.MANAGE, *settings.pools_of("vision"))
    assert ANN.may(Role.SUBMIT, "research")
    assert not ANN.may(Role.MANAGE, "research")
    assert not ANN.may(Role.ADMIN, "dev")
    assert not ANN.may(Role.SUBMIT, "other")
    assert not ANN.may(Role.SUBMIT)
    assert own_user("me").is_admin
    assert User("bob", "bob").may(Role.SUBMIT, "any")
    with pytest.raises(ForbiddenError, match="'manage' in pool 'research'"):
        ANN.check(Role.MANAGE, "hold it", "research")


def test_roles_are_named() -> None:
    """A wrong name is refused, with the right one."""
    assert roles_of("ann", {"*": "admin"}) == {"*": Role.ADMIN}
    with pytest.raises(InputError, match="'manager'; did you mean 'manage'"):
        roles_of("ann", {"dev": "manager"})


def test_names_of_clients_are_those_of_their_user() -> None:
    """So that nobody can name what another one has named."""
    own, bob = own_user("me"), User("bob", "bob")
    names = {scoped(user, own, "key") for user in (own, ANN, bob)}
    assert len(names) == 3
    assert {plain_name(name) for name in names} == {"key"}
    assert scoped(own, own, "key") == "key"
    mine = scoped(ANN, own, "key")
    assert scoped(ANN, own, mine) == mine
    for user in (own, bob):
        with pytest.raises(InputError, match="control character"):
            scoped(user, own, mine)


def test_a_user_has_at_most_so_many_open_jobs() -> None:
    """All of a submission count, or none; the own account has no limit."""
    quota = JobQuota(own_user("me"), [("1", "ann"), ("2", "me"), ("3", None)])
    quota.reserve("ann", {"4": 1, "5": 1}, 3)
    with pytest.raises(LimitError, match="has 3 jobs that are not over, and may have 3"):
        quota.reserve("ann", {"6": 1}, 3)
    quota.free("ann", ["1"])
    quota.free("ann", ["1"])
    with pytest.raises(LimitError):
        quota.reserve("ann", {"6": 1, "7": 1}, 3)
    quota.reserve("ann", {"6": 1}, 3)
    quota.reserve("bob", {"8": 1}, 1)
    quota.reserve("me", {str(n): 1 for n in range(100)}, 0)


def test_a_rate_is_that_of_a_key() -> None:
    """Events that come too early are told when to come again, and are not counted."""
    now = [0.0]
    limit = RateLimit(2.0, 3.0, lambda: now[0])
    assert [limit.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.wait("b") == 0.0
    now[0] = 0.5
    assert limit.wait("a") == 0.0
    assert limit.wait("a") == 0.5
    now[0] = 1000.0
    assert [limit.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    for number in range(2 * KEYS_MAX):
        limit.wait(str(number))
    assert len(limit._left) <= KEYS_MAX


def test_addresses_of_one_host_are_one() -> None:
    """A host of IPv6 has very many."""
    assert group_of("192.0.2.1") == group_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert group_of("2001:db8::1") == group_of("2001:db8::2") != group_of("2001:db9::1")


# Tokens.


def test_a_token_is_stored_as_a_hash(tmp_path: Path) -> None:
    """It is found after a restart, until it is too old or revoked."""
    now = [1000.0]
    with Store(tmp_path) as store:
        tokens = Tokens(store, lambda: now[0])
        kept, text = tokens.create("ann")
        now[0] += 1
        short, short_text = tokens.create("ann", days=1)
        assert tokens.find(text) == kept
    for file in tmp_path.glob("store.db*"):
        assert text.split("_", 2)[2].encode() not in file.read_bytes()
    with Store(tmp_path) as store:
        tokens = Tokens(store, lambda: now[0])
        assert [one.used for one in tokens.of("ann")] == [1001.0, None]
        found = tokens.find(short_text)
        assert found is not None
        assert (found.id, found.user) == (short.id, "ann")
        logins = Logins({"ann": User("ann", "ann")}.get, is_valid=tokens.is_valid)
        session = logins.begin("ann", short.id)
        assert logins.session(session) is not None
        now[0] += 86_400
        assert tokens.find(short_text) is None
        assert logins.session(session) is None, "a login outlives the token it began with"
        wrong = ["", "slw", "slw_", f"slw_{kept.id}", f"slw_{kept.id}_", f"{text}x", text[:-1]]
        for one in [
            *wrong,
            text.replace("slw", "SLW"),
            f"slw_x_{text.split('_', 2)[2]}",
            "\ud800",
        ]:
            assert tokens.find(one) is None
        tokens.revoke(kept.id)
        assert tokens.find(text) is None
    with Store(tmp_path) as store:
        tokens = Tokens(store, lambda: now[0])
        assert tokens.find(text) is None
        assert [one.revoked for one in tokens.of()] == [now[0], None]


def test_a_user_has_at_most_so_many_tokens(tmp_path: Path) -> None:
    """Those that are revoked do not count."""
    with Store(tmp_path) as store:
        tokens = Tokens(store)
        made = [tokens.create("ann")[0] for _ in range(TOKENS_MAX)]
        with pytest.raises(InputError, match="revoke some"):
            tokens.create("ann")
        tokens.create("bob")
        tokens.revoke(made[0].id)
        tokens.create("ann")


# The configuration.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('listen = "8443"', "give an address and a port"),
        ('listen = "0.0.0.0:8443"\nhosts = ["a"]', "`certificate` and `key`, or `plain`"),
        ('listen = "192.0.2.1:8443"', "`certificate` and `key`, or `plain`"),
        ('listen = "[::]:8443"\nplain = true', "state `hosts`"),
        ('key = "k"\nlisten = "127.0.0.1:1"', "key is stated without certificate"),
        ('certificate = "c"', "state listen"),
        ("[service.users.ann]\nroles = {a = 'boss'}", "'boss'"),
        ("[service.users.ann]\naccount = 'root'", "is that of root"),
        ("[service.users.root]", "is that of root"),
        ("[service.users.ann]\njobs_max = -1", "jobs_max"),
        ("[service.users.ann]\nrole = 'admin'", "role"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    """Before a server listens."""
    file = tmp_path / "slotwise.toml"
    file.write_text(f"[service]\n{text}\n")
    with pytest.raises(InputError, match=message):
        settings_of(file, {})


def test_a_configuration_of_users(tmp_path: Path) -> None:
    """Paths begin at the folder of the file; options go before it."""
    file = tmp_path / "slotwise.toml"
    file.write_text(
        '[service]\nlisten = "0.0.0.0:1"\nhosts = ["b.example"]\ncertificate = "c.pem"\n'
        "[service.users.ann]\n[service.users.bob]\naccount = 'b'\njobs_max = 3\n"
        "roles = {dev = 'manage'}\n"
    )
    settings = settings_of(file, {})
    assert settings.network == NetworkSettings(
        "0.0.0.0", 1, tmp_path / "c.pem", hosts=("b.example",)
    )
    assert settings.network.url(8443) == "https://b.example:8443"
    assert settings.users == {
        "ann": User("ann", "ann", {"*": Role.SUBMIT}),
        "bob": User("bob", "b", {"dev": Role.MANAGE}, 3),
    }
    given = {"listen": "[::1]:2", "certificate": Path("d.pem")}
    network = settings_of(file, given).network
    assert network == NetworkSettings("::1", 2, Path("d.pem"), hosts=("b.example",))
    assert settings_of(None, {}).network is None


def test_the_configuration_on_the_page_is_one(tmp_path: Path) -> None:
    """But for the accounts, which this machine does not have."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "share-the-service.md"
    first, second = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    file = tmp_path / "team.toml"
    file.write_text(first.replace("run_as = true", ""))
    settings = settings_of(file, {})
    assert {name: user.account for name, user in settings.users.items()} == {
        "ann": "ann",
        "bob": "bob2",
    }
    assert settings.users["bob"].may(Role.MANAGE, *settings.pools_of("research"))
    file.write_text(second)
    assert settings_of(file, {}).network == NetworkSettings(
        "0.0.0.0",
        8443,
        tmp_path / "cert.pem",
        tmp_path / "key.pem",
        hosts=("build.example.org",),
    )


def test_accounts_must_exist_where_work_runs_as_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere they are of no use, and run_as takes root."""
    users = {"ann": User("ann", "no-such-account-here")}
    assert Settings(users=users).users == users
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="runs as root"):
        Settings(run_as=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InputError, match="there is no account 'no-such-account-here'"):
        Settings(users=users, run_as=True)


# What clients store, and where servers are.


def test_tokens_of_a_user_are_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written whole; the variable goes before it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SLOTWISE_TOKEN", raising=False)
    with pytest.raises(SlotwiseError, match="slotwise login https://a:1"):
        credential_for("https://a:1")
    store_credential("https://a:1", Credential("slw_1", '/c "a".pem'))
    store_credential("https://b:1", Credential("slw_2"))
    assert stat.S_IMODE(tokens_file().stat().st_mode) == 0o600
    assert credential_for("https://a:1") == Credential("slw_1", '/c "a".pem')
    assert credential_for("https://b:1") == Credential("slw_2")
    monkeypatch.setenv("SLOTWISE_TOKEN", "slw_3")
    variable = "SLOTWISE_TOKEN"
    assert credential_for("https://a:1") == Credential("slw_3", '/c "a".pem', variable)
    assert credential_for("https://c:1") == Credential("slw_3", None, variable)
    assert store_credential("https://a:1", None)
    assert not store_credential("https://a:1", None)
    assert "slw_2" in tokens_file().read_text()
    tokens_file().write_text("[")
    with pytest.raises(InputError, match="is not TOML"):
        credential_for("https://a:1")


def test_a_server_is_a_socket_or_a_host() -> None:
    """The usual ports are left out in a URL, not in the name of a token."""
    assert server_place("unix:/a") == server_place("unix:///a") == ServerPlace(Path("/a"))
    assert str(server_place("https://a.example/")) == "https://a.example:443"
    assert str(server_place("http://[::1]:8443")) == "http://[::1]:8443"
    for wrong in ("https://", "ftp://a", "https://a/x", "https://u:p@a", "https://a:x", "a:1"):
        with pytest.raises(InputError, match="expected unix:"):
            server_place(wrong)


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


def test_the_record_is_limited_and_safe_to_show(tmp_path: Path) -> None:
    """One earlier file is kept; nothing in it moves a cursor."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, 2000)
    log.write("ann", "a", "POST /\x1b[2J\n", "done", jobs=[str(n) for n in range(100)])
    (line,) = path.read_bytes().splitlines()
    assert b"\x1b" not in line
    assert (json.loads(line)["count"], len(json.loads(line)["jobs"])) == (100, 20)
    log.write("ann", "a", "POST /", "done", jobs=["é" * 100] * 100)
    line = path.read_bytes().splitlines()[-1]
    assert (json.loads(line)["count"], len(json.loads(line)["jobs"])) == (100, 1)
    for _ in range(100):
        log.write("ann", "a", "x" * 1000, "done")
    log.close()
    files = list(tmp_path.iterdir())
    assert sorted(one.name for one in files) == ["audit.jsonl", "audit.jsonl.1"]
    assert all(one.stat().st_size <= 2000 for one in files)


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


def test_the_largest_number_is_no_limit() -> None:
    """For the account of the server."""
    assert own_user("me").jobs_max == MAX_WHOLE
