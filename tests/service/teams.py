"""A server that a team shares on a network, with TLS: for tests of users and attacks."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trustme

from service.asgi import Answer
from service.conftest import RunningServer, end_processes
from slotwise.service.clients.credentials import Credential
from slotwise.service.clients.transport import Transport

CONFIG = """
[[pools]]
name = "science"
[[pools]]
name = "research"
parent = "science"
[[pools]]
name = "vision"
parent = "science"
[[pools]]
name = "dev"
[service]
certificate = "{folder}/server.pem"
listen = "127.0.0.1:0"
[service.users.ann]
account = "nobody"
roles = {{ science = "submit" }}
[service.users.bob]
account = "nobody"
roles = {{ "*" = "submit" }}
jobs_max = 5
[service.users.max]
account = "nobody"
roles = {{ science = "manage", dev = "submit" }}
[service.users.kim]
account = "nobody"
roles = {{ vision = "submit" }}
[service.users.ada]
account = "nobody"
roles = {{ "*" = "admin" }}
"""
"""Two users who submit, one who manages a pool, and an administrator."""


class Team:
    """A server on a network, and the tokens of its users."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self.server, self.folder, self.ca = server, folder, str(folder / "ca.pem")
        self.tokens: dict[str, str] = {}
        self.find()

    def find(self) -> None:
        """Find the port of the server, which has just started."""
        parts = urlsplit(self.server.post("/v1/codes")["url"])
        self.url, self.port = f"{parts.scheme}://{parts.netloc}", parts.port or 0

    def token(self, user: str) -> str:
        """A token of a user."""
        if user not in self.tokens:
            self.tokens[user] = self.server.post("/v1/tokens", {"user": user})["token"]
        return self.tokens[user]

    def transport(self, user: str, token: str | None = None) -> Transport:
        """What a client of a user asks with."""
        return Transport(self.url, Credential(token or self.token(user), self.ca))

    def submit(self, by: str, *jobs: Mapping[str, Any], **more: Any) -> list[str]:
        """The ids of jobs of a user that were accepted."""
        body = {"jobs": list(jobs), "folder": str(self.folder), **more}
        return [one["id"] for one in self.transport(by).post("/v1/jobs", body)["jobs"]]

    def connect(self) -> socket.socket:
        """A connection with TLS, to be used by hand."""
        context = ssl.create_default_context(cafile=self.ca)
        plain = socket.create_connection(("127.0.0.1", self.port), 30)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] = b"",
        *,
        user: str | None = None,
    ) -> Answer:
        """The answer to a request with exactly these headers, and the token of a user."""
        context = ssl.create_default_context(cafile=self.ca)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=60, context=context
        )
        try:
            stated = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
            if user is not None:
                stated["Authorization"] = f"Bearer {self.token(user)}"
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.putrequest(method, path, skip_host=True)
            for name, value in {**stated, "Content-Length": str(len(data))}.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


@contextmanager
def running_team(folder: Path, config: str = CONFIG) -> Iterator[Team]:
    """A server with this configuration, until the end of the block."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    (folder / "slotwise.toml").write_text(config.format(folder=folder))
    server = RunningServer(folder, "--config", str(folder / "slotwise.toml"))
    try:
        yield Team(server.start(), folder)
    finally:
        if server.process is not None and server.process.poll() is None:
            server.end()
        end_processes(folder / "service")
