"""The commands for users of a network: `slotwise token`, `login`, `logout` and `page`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from slotwise.cli.application import Application, print_json, show_message
from slotwise.cli.parsing import Json, Server, seconds_option
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.service.clients.transport import ServerClosedError, Transport
from slotwise.service.wire import ServerPlace, server_place

token = Application(help="Make, list and revoke the tokens of users of a network.")

DAY = 86_400.0

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine: what is sent to them leaves it by no network."""

Url = Annotated[str, typer.Argument(metavar="URL", help="The server, https://HOST:PORT.")]


@token.command("create")
def create_token(
    user: Annotated[
        str | None,
        typer.Argument(metavar="USER", help="A user of the configuration [default: yourself]."),
    ] = None,
    lasts: Annotated[
        float | None,
        seconds_option("How long it can be used, as 90d [default: until it is revoked].", 1),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print a new token of a user. It is shown this once; the server keeps its hash.

    `slotwise token create ann`

    `slotwise token create ann --lasts 90d`
    """
    days = None if lasts is None else lasts / DAY
    found = Transport(server).post("/v1/tokens", {"user": user, "days": days})
    if as_json:
        print_json(found)
        return
    from slotwise.cli.service_tables import ago

    print(found["token"])
    expires = found["expires"]
    ends = "" if expires is None else f", which ends {ago(expires, time.time())}"
    show_message(
        f"slotwise: token {found['id']} of {found['user']}{ends}; give it to this user only,"
        " who runs `slotwise login URL`"
    )


@token.command("list")
def list_tokens(server: Server = None, as_json: Json = False) -> None:
    """List the tokens: those of all users, or on a network your own.

    `slotwise token list`
    """
    from slotwise.cli import service_tables

    found = Transport(server).get("/v1/tokens")
    if as_json:
        print_json(found)
    else:
        service_tables.show_tokens(found["tokens"])


@token.command("revoke")
def revoke_token(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `slotwise token list` shows it.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Let a token be of no more use, from now on. Its jobs continue.

    `slotwise token revoke 1f0c5a2b9e77`
    """
    if "/" in id:
        raise InputError(f"token {id!r}: give its id, as `slotwise token list` shows it")
    found = Transport(server).post(f"/v1/tokens/{id}/revoke")
    if as_json:
        print_json(found)
    else:
        show_message(f"slotwise: token {found['id']} of {found['user']} is revoked")


def login(
    url: Url,
    ca: Annotated[
        str | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            help="The authority of its certificate [default: the system's].",
        ),
    ] = None,
) -> None:
    """Store a token for a server on a network; it is asked for, or read from stdin.

    `slotwise login https://build.example.org:8443`

    `slotwise login https://build.example.org:8443 --ca team.pem < token`
    """
    import os

    from slotwise.service.clients.credentials import Credential, store_credential, tokens_file

    place = _network_place(url)
    if not place.is_secure and place.host not in LOOPBACK:
        show_message(
            f"slotwise: {place} is without TLS: who sees its traffic can use the token",
            style="yellow",
        )
    if sys.stdin.isatty():
        import getpass

        text = getpass.getpass(f"token for {place}: ").strip()
    else:
        text = sys.stdin.readline().strip()
    if not text:
        raise InputError("no token was given; `slotwise token create` makes one")
    credential = Credential(text, None if ca is None else os.path.abspath(ca))
    try:
        found = Transport(str(place), credential).get("/v1/whoami")  # It is stored if it works.
    except ServerClosedError as error:
        if place.is_secure:
            raise
        secure = str(place).replace("http:", "https:", 1)
        raise SlotwiseError(f"{error}; if it has TLS, it is at {secure}") from None
    store_credential(str(place), credential)
    show_message(f"slotwise: you are {found['user']} at {place}; stored in {tokens_file()}")


def logout(url: Url) -> None:
    """Remove the token for a server from this machine; it is not revoked.

    `slotwise logout https://build.example.org:8443`
    """
    from slotwise.service.clients.credentials import store_credential

    place = _network_place(url)
    if not store_credential(str(place), None):
        raise InputError(f"no token is stored for {place}")
    show_message(f"slotwise: the token for {place} is removed; `slotwise token revoke` ends it")


def print_page(
    opens: Annotated[
        bool, typer.Option("--open", help="Also open it in the browser of this machine.")
    ] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print a link to the page of the server, with which one browser logs in as you.

    It works once, within five minutes.

    `slotwise page --open`
    """
    transport = Transport(server)
    found = transport.post("/v1/codes")
    url = f"{transport.place}{found['path']}" if transport.place.is_network else found["url"]
    if url is None:
        raise SlotwiseError(
            "the server has no page, because it listens at its socket only; start it with"
            " `slotwise serve --listen 127.0.0.1:8443`"
        )
    if as_json:
        print_json({"url": url})
    else:
        print(url)
    if opens:
        import webbrowser

        webbrowser.open(url)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "login": login,
    "logout": logout,
    "page": print_page,
}
"""The commands by name, besides `token`, which has several."""


def add_user_commands(app: Application) -> None:
    """Add the commands of this module to an application."""
    app.add_typer(token, name="token")
    for name, command in COMMANDS.items():
        app.command(name)(command)


def _network_place(url: str) -> ServerPlace:
    place = server_place(url)
    if not place.is_network:
        raise InputError(f"server {url!r}: expected https://HOST:PORT; a socket needs no token")
    return place
