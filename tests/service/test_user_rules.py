"""The rules about users: roles, names, limits, tokens, the configuration and the record."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from slotwise.cli.serve import settings_of
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.pools import Pool
from slotwise.service.clients.credentials import (
    Credential,
    credential_for,
    store_credential,
    tokens_file,
)
from slotwise.service.engine.rights import JobQuota, LimitError, plain_name, scoped
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
from slotwise.service.wire import ServerPlace, server_place

ANN = User("ann", "ann", {"research": Role.SUBMIT, "dev": Role.MANAGE})


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


@pytest.mark.parametrize(
    ("sharing", "stated", "scheduler"),
    [
        ("", "", "flex"),
        ("[pools]\nprod = 3\n", "", "fair"),
        ("[pools]\nprod = 3\n", "scheduler = 'flex'\n", "flex"),
        ("[service.users.ann]\n", "", "fair"),
        ("[service.users.ann]\n", "scheduler = 'flex'\n", "flex"),
        ("[service.users.ann]\n", "objective = {penalty = 'tardiness'}\n", "flex"),
    ],
)
def test_pools_and_users_share_by_weight_unless_the_file_says_otherwise(
    tmp_path: Path, sharing: str, stated: str, scheduler: str
) -> None:
    """`flex` would serve the many equal jobs of one of them before those of the others."""
    file = tmp_path / "slotwise.toml"
    file.write_text(stated + sharing)
    assert settings_of(file, {}).scheduler == scheduler
    assert settings_of(file, {"scheduler": "fifo"}).scheduler == "fifo"


LICENSED = "[pools]\nbob = {resources_max = {license = 1}}\n"


def test_a_pool_limits_a_resource_that_the_server_states(tmp_path: Path) -> None:
    """In its file or by an option; the hosts of a Dask cluster may have any."""
    file, limited = tmp_path / "team.toml", Pool("bob", resources_max={"license": 1})
    file.write_text(f"slots = 2\nresources = {{license = 2}}\n{LICENSED}")
    assert settings_of(file, {}).pools == (limited,)
    with pytest.raises(
        InputError,
        match=r"team\.toml: pools\.bob: resources_max has 'license', .*; known: memory, gpu",
    ):
        settings_of(file, {"resources": {"gpu": 1}})
    file.write_text(LICENSED)
    for given in {"resources": {"license": 2}}, {"dask": "tcp://127.0.0.1:1"}:
        assert settings_of(file, given).pools == (limited,)


def test_a_pool_shares_the_kinds_of_slots_that_the_server_states(tmp_path: Path) -> None:
    """In its file or by an option."""
    file = tmp_path / "team.toml"
    pools = "[pools]\nbob = {slots_max = {large = 1}}\n"
    file.write_text(f"slots = {{small = 2, large = 2}}\n{pools}")
    assert settings_of(file, {}).pools[0].slots_max == {"large": 1}
    with pytest.raises(InputError, match="slots_max has the kind 'large', which no host"):
        settings_of(file, {"slots": 2})
    file.write_text(pools)
    assert settings_of(file, {"slots": {"large": 2}}).pools[0].slots_max == {"large": 1}


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


def test_the_largest_number_is_no_limit() -> None:
    """For the account of the server."""
    assert own_user("me").jobs_max == MAX_WHOLE
