"""The process of a server: its socket, its signals, its configuration and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.h11_impl import H11Protocol

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.hub import Hub
from slotwise.service.engine.reloading import changed
from slotwise.service.engine.restore import Restoration
from slotwise.service.engine.retention import end_left_over, prune
from slotwise.service.http.listening import NetworkListener
from slotwise.service.http.server import ServiceApp
from slotwise.service.http.telemetry import RequestCounter
from slotwise.service.http.token_routes import TokenRoutes
from slotwise.service.settings import NetworkSettings, Settings
from slotwise.service.store.store import Store
from slotwise.service.users.access import User
from slotwise.service.users.audit import AuditLog
from slotwise.service.users.guard import Guard, GuardRules, host_name
from slotwise.service.users.logins import Logins
from slotwise.service.users.tokens import Tokens
from slotwise.service.wire import SOCKET_BYTES_MAX

PRUNE_SECONDS = 600.0
"""How often old jobs are forgotten, and streams of clients that have left are closed."""

LOG_BYTES_MAX = 10_000_000
"""The size at which the log of a server in the background is emptied."""

CHECK_SECONDS = 1.0
"""How often the server checks that its session has not failed, and notifies systemd."""

ACCEPTED_AT_ONCE = 8
"""The connections that are accepted before one too many is refused: each needs a descriptor."""

WAITING_MAX = 1024
"""The connections that the system keeps until they are accepted."""

_CREDENTIALS = struct.Struct("3i")


class OwnProtocol(H11Protocol):
    """Serves HTTP to processes of the server's own account only."""

    def connection_made(self, transport: Any) -> None:
        """Refuse the connection of another account, and one too many."""
        account = peer_account(transport.get_extra_info("socket"))
        if account not in (os.geteuid(), 0) or len(self.connections) >= connections_max():
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to do for a connection that was refused."""
        if self in self.connections:
            super().connection_lost(exc)


def connections_max() -> int:
    """The most connections: half of the descriptors, so that jobs and files have the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // 2


def peer_account(connection: Any) -> int:
    """The number of the account at the other end of a unix socket."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, account, _ = _CREDENTIALS.unpack(packed)
    return int(account)


def serve(
    folder: Path, read: Callable[[], Settings], report: Callable[[str], None], path: Path
) -> int:
    """Serve until SIGTERM or SIGINT; the second one ends it at once. Returns the exit code.

    read  the settings; called again at a reload
    report  takes one line about what happens
    path  where the socket is made
    """
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        raise InputError(f"the path of the socket is too long: {path}; name another folder")
    with Store(folder) as store:
        process = Process(store, read, report, path)
        return asyncio.run(process.run())


class Process:
    """A server from its start to its end."""

    def __init__(
        self,
        store: Store,
        read: Callable[[], Settings],
        report: Callable[[str], None],
        path: Path,
    ) -> None:
        self._store, self._read, self._report, self._path = store, read, report, path
        self._settings = read()
        network = self._settings.network  # A mistake is reported before anything begins.
        self._network = None if network is None else NetworkListener(network)
        self._ending, self._hangup = asyncio.Event(), asyncio.Event()
        self._reloading = threading.Lock()
        self._engine = Engine(store, self._settings, _next_run(store.path.parent), Hub())
        self._restoration = Restoration(self._engine)
        self._server = ServiceApp(self._engine, self._reload, self._ending.set)
        self._tokens = Tokens(store)
        self._audit = AuditLog(self._engine.folder / "audit.jsonl")
        logins = Logins(self._engine.user, is_valid=self._tokens.is_valid)
        routes = TokenRoutes(self._engine, self._tokens).routes()
        self._guard = Guard(
            self._server.app(*routes),
            GuardRules(),
            logins,
            user_of_token=self._user_of_token,
            own=self._engine.own,
            audit=self._audit.write,
        )

    async def run(self) -> int:
        """Listen, restore the jobs, serve, and leave in order."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        hangups = loop.create_task(self._on_hangups())
        pages = loop.create_task(self._server.pages.run())
        listening = _listening(self._path)
        http = uvicorn.Server(
            uvicorn.Config(
                RequestCounter(self._guard.from_own, self._engine.counts),
                interface="asgi3",
                http=OwnProtocol,
                proxy_headers=False,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=600,
                timeout_graceful_shutdown=1,
                backlog=ACCEPTED_AT_ONCE,
            )
        )
        serving = loop.create_task(http._serve([listening]))
        try:
            if self._network is not None and self._settings.network is not None:
                self._guard.rules = self._rules(self._settings.network)
                counted = RequestCounter(self._guard, self._engine.counts)
                most = connections_max() // 2  # The own account has the others.
                self._network.start(counted, http.server_state, most)
            await self._restore()
            listening.listen(WAITING_MAX)  # The server has stated its `backlog` instead.
            notify_systemd("READY=1")
            restoring = loop.create_task(self._restore_others())
            try:
                return await self._until_end()
            finally:
                self._restoration.stop()
                await restoring
        finally:
            self._restoration.stop()  # A reload may wait for it.
            self._server.is_draining = True
            hangups.cancel()
            notify_systemd("STOPPING=1")
            await run_in_threadpool(self._engine.leave, self._settings.drain_seconds)
            await self._server.pages.close()
            pages.cancel()
            if self._network is not None:
                self._network.stop()
            http.should_exit = True
            await serving
            listening.close()
            self._audit.close()
            with suppress(FileNotFoundError):
                self._path.unlink()

    def _rules(self, network: NetworkSettings) -> GuardRules:
        assert self._network is not None
        hosts = {network.host, *network.hosts} - (
            {network.host} if network.is_wildcard else set()
        )
        return GuardRules(
            hosts=frozenset(host_name(one) for one in hosts),
            port=self._network.port,
            is_secure=network.certificate is not None,
            url=self._network.url,
        )

    def _user_of_token(self, text: str) -> tuple[User, str] | None:
        token = self._tokens.find(text)
        user = None if token is None else self._settings.users.get(token.user)
        return None if token is None or user is None else (user, token.id)

    async def _restore(self) -> None:
        began = time.monotonic()
        restored = await run_in_threadpool(self._restoration.begin)
        self._server.is_restoring = False
        found = f"; jobs from before: {restored}" if str(restored) else ""
        slots = self._engine.session.slots
        took = time.monotonic() - began
        also = "" if self._network is None else f" and {self._network.url}"
        self._report(
            f"serving {slots} slots at {self._path}{also}{found} (restored in {took:.2g} s)"
        )

    async def _restore_others(self) -> None:
        """Restore the jobs that can wait, then end what no job knows of."""
        began = time.monotonic()
        try:
            restored = await run_in_threadpool(self._restoration.finish)
            if (took := time.monotonic() - began) > CHECK_SECONDS:
                self._report(f"jobs from before: {restored} (restored in {took:.2g} s)")
            if not restored.left:
                await run_in_threadpool(end_left_over, self._engine)
        except Exception as error:  # What runs continues.
            self._report(f"jobs from before cannot be restored: {error!r}; they are kept")

    async def _until_end(self) -> int:
        """Wait for a signal; 1 if the session or the store has failed."""
        next_prune = 0.0
        while not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), CHECK_SECONDS)
            if error := self._engine.core._error:
                self._report(f"the session has failed: {error}; all jobs are kept")
                return 1
            if fault := self._engine.store_fault:
                self._report(f"what has ended cannot be stored: {fault}; all jobs are kept")
                return 1
            notify_systemd("WATCHDOG=1")
            if time.monotonic() >= next_prune:
                next_prune = time.monotonic() + PRUNE_SECONDS
                await run_in_threadpool(self._tidy)
        self._report("stopping: commands continue, and other jobs are kept")
        return 0

    def _on_signal(self) -> None:
        """End; at the second signal, without a wait for calls."""
        self._engine.hurries = self._ending.is_set()
        self._ending.set()

    def _tidy(self) -> None:
        renew_log(self._path.with_name("server.log"))
        try:
            prune(self._engine)
            self._server.close_left()
        except Exception as error:  # It is tried again; jobs must not end because of it.
            self._report(f"old jobs cannot be removed now: {error!r}")

    async def _on_hangups(self) -> None:
        """Reload at SIGHUP; once for all that come meanwhile."""
        while await self._hangup.wait():
            self._hangup.clear()
            try:
                texts = await run_in_threadpool(self._reload)
                for text in texts or ["the configuration is as before"]:
                    self._report(text)
            except SlotwiseError as error:
                self._report(f"the configuration was not changed: {error}")
            except Exception as error:  # A defect: later signals work all the same.
                self._report(f"the configuration was not changed: {error!r}")

    def _reload(self) -> list[str]:
        """Take over the settings that can change; what was changed, as text."""
        self._restoration.wait()  # Changes of pools are checked with all jobs.
        with self._reloading:
            new = self._read()
            if self._network is not None and new.network is not None:
                self._network.renew(new.network)
            texts = changed(self._engine, new)
            self._settings = self._engine.settings
            if self._network is not None and new.network is not None:
                self._guard.rules = self._rules(new.network)
        for text in texts:
            self._store.note(time.time(), text)
        return texts


def renew_log(log: Path) -> None:
    """Empty the log that this process writes to when it is large; a copy of it is kept."""
    with suppress(OSError):  # A full disk, or another process has it.
        found = log.stat()
        if found.st_size > LOG_BYTES_MAX and os.path.samestat(found, os.fstat(2)):
            shutil.copyfile(log, f"{log}.1")
            os.truncate(log, 0)  # It is opened to append.


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message is about more than a client that sends anything but HTTP, or that still
    reads when the server stops."""
    error = record.exc_info[0] if record.exc_info else None
    return error is not asyncio.CancelledError and record.levelno >= logging.ERROR


def _next_run(folder: Path) -> int:
    """The number of this start of the server."""
    return max((int(one.name) for one in folder.glob("runs/[0-9]*")), default=0) + 1


def _listening(path: Path) -> socket.socket:
    """A socket that only this account can use."""
    with suppress(FileNotFoundError):
        path.unlink()  # Of a server that was killed: the lock of the store is ours.
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise InputError(f"no socket can be made at {path}: {error.strerror}") from error
    finally:
        os.umask(mask)
    listening.listen(WAITING_MAX)
    listening.setblocking(False)
    return listening


def notify_systemd(state: str) -> None:
    """Notify systemd, if it has started this process, by its notification protocol."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as target:
        target.connect("\0" + address[1:] if address.startswith("@") else address)
        target.sendall(state.encode())


def report_on_stderr(text: str) -> None:
    """Write a line about the server, with the time."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"slotwise, {now}: {text}", file=sys.stderr, flush=True)


serve_quietly = partial(serve, report=report_on_stderr)
