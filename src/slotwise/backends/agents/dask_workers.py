"""The workers of a Dask cluster as hosts, with an agent beside each worker."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from ssl import Purpose
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Client, Security
from distributed.comm.core import connect
from distributed.core import send_recv
from distributed.utils import LoopRunner

from slotwise.backends.agents.asking import RunInLoop
from slotwise.backends.agents.lease import Leases
from slotwise.backends.agents.plugin import START_SECONDS, AgentOrder, tls_of
from slotwise.backends.agents.slots import AgentHost
from slotwise.core.errors import InputError, SlotwiseError, option_name
from slotwise.jobs.hosts import auth
from slotwise.jobs.hosts.auth import tls_context

POLL_SECONDS = 1.0
"""The interval at which the manager checks for new workers."""

ANSWER_SECONDS = 10.0
"""How long a new session waits for a worker while others can be used."""

TIMEOUT = "distributed.comm.timeouts.connect"
"""The setting of Dask for the time that a connection may take."""

TLS = "distributed.comm.tls"
"""The settings of Dask for the certificates of a client that is made from an address."""

CERTIFICATES = tuple(f"{TLS}.{key}" for key in ("ca-file", "client.cert", "client.key"))

FIND_SECONDS = 5.0
"""How long the first answer of a scheduler may take unless Dask's configuration states it."""

SCHEDULER_SECONDS = 10.0
"""How long later answers may take. A session whose scheduler is frozen ends after this."""


class DaskWorkers:
    """Agents on all workers of a Dask cluster, also on workers that are added later.

    A host has the name of its worker. Call `connect` first, then `watch`; `close` ends the
    agents. A lease keeps Dask from using the threads whose slots the agents have.
    """

    def __init__(self, client: Client | str, slots: int | None = None) -> None:
        """Use at most `slots` slots of each worker. InputError without a scheduler."""
        self._is_mine = isinstance(client, str)
        self._client = client = _client(client) if isinstance(client, str) else _checked(client)
        self._scheduler: Any = client.scheduler
        token = os.urandom(16)
        plugin = f"slotwise-agent-{os.urandom(4).hex()}"
        tls = tls_of(client.security, "client")
        security: auth.Security = tls_context(tls, Purpose.SERVER_AUTH) if tls else token
        self._asking = RunInLoop(client, AgentOrder(plugin, token.hex(), slots), security)
        self._connected: dict[str, str] = {}  # by the worker's address, its name
        self._refused: dict[str, str] = {}  # by the worker's address, why
        self._reported: set[str] = set()  # addresses
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._leases = Leases(client, plugin)

    def connect(self) -> list[AgentHost]:
        """Connect to the agents of all workers that are not connected.

        A worker that does not answer within some seconds is left out, and may join later.
        SlotwiseError if no worker has an agent that can be used.
        """
        self._ask()
        self._asking.wait(ANSWER_SECONDS)
        hosts = self._take()
        if not hosts and not self._connected:
            self._asking.wait(START_SECONDS)
            hosts = self._take()
        is_none = not hosts and not self._connected
        remedy = "restart it" if is_none else "it joins when it does, or restart it"
        for address, name in self._asking.silent().items():
            silent = f"host {name!r}: its Dask worker does not answer; {remedy}"
            self._refuse(address, silent, is_reported=True)
        if is_none:
            why = "; ".join(self._refused.values()) or "there are none"
            raise SlotwiseError(
                f"no worker of the Dask cluster can be used: {why}; {self.remedy}"
            )
        return hosts

    @property
    def remedy(self) -> str:
        """What a user can do to add a host."""
        return f"start a worker, such as by `dask worker {self._scheduler.address}`"

    def watch(self, join: Callable[[AgentHost], None], end: Callable[[str], None]) -> None:
        """Call `join` for each host that is added, in a separate thread, until `close`.

        Call `end` in that thread if the connection to the scheduler has ended.
        """
        self._watcher = threading.Thread(
            target=self._watch, args=(join, end), name="slotwise Dask workers", daemon=True
        )
        self._watcher.start()

    def left(self, name: str) -> None:
        """The connection to a host has ended; reconnect if its worker is still present."""
        for address, known in list(self._connected.items()):
            if known == name:
                del self._connected[address]
                self._leases.drop(address)

    def close(self) -> None:
        """End all agents. Idempotent."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(START_SECONDS)
        self._asking.close()
        if self._client.status == "running":
            self._leases.close()
            with suppress(Exception):  # Of Dask: the cluster ends now.
                self._asking.end(self._known())
        if self._is_mine:
            self._client.close()  # type: ignore[no-untyped-call]

    def _watch(self, join: Callable[[AgentHost], None], end: Callable[[str], None]) -> None:
        fails = False
        while not self._is_over.wait(POLL_SECONDS):
            if self._client.status == "closed":
                end("the connection to the Dask scheduler has ended")
                return
            try:
                self._ask()
                for host in self._take():
                    join(host)
                fails = False
            except Exception as error:  # Of Dask, while the cluster changes or ends.
                if self._client.status == "running" and not fails:
                    _warn(f"cannot list the Dask workers, retrying: {error}")
                    fails = True

    def _known(self) -> Mapping[str, Any]:
        """The workers of the cluster, by address. SlotwiseError if the scheduler is silent.

        The copy that the client keeps may be outdated or lack workers, and all hosts would seem
        to be lost.
        """

        async def ask() -> Any:
            return await self._scheduler.identity()

        try:
            found: Mapping[str, Any] = self._client.sync(  # type: ignore[no-untyped-call]
                ask, callback_timeout=SCHEDULER_SECONDS
            )["workers"]
        except OSError as error:
            place = self._scheduler.address
            reason = str(error).rstrip(".") or f"timed out after {SCHEDULER_SECONDS:g} s"
            raise SlotwiseError(
                f"the Dask scheduler at {place} does not answer: {reason}; try again when it"
                " does, or start another"
            ) from error
        return found

    def _ask(self) -> None:
        """Start agents beside the workers that are not connected."""
        workers = self._known()
        for address in self._connected.keys() - workers.keys():
            del self._connected[address]
            self._leases.drop(address)
        new = {a: str(w["name"]) for a, w in workers.items() if a not in self._connected}
        self._asking.ask(new)

    def _take(self) -> list[AgentHost]:
        """Connections to the agents of the workers that have answered since the last call."""
        hosts = []
        for address, answer in self._asking.answers().items():
            if isinstance(answer, AgentHost):
                self._connected[address] = answer.name
                self._reported.discard(address)
                self._leases.take(address, answer.slots)
                hosts.append(answer)
            elif isinstance(answer, OSError):  # The worker may be leaving.
                is_reported = address in self._refused
                self._refuse(address, f"{address}: {answer}", is_reported=is_reported)
            else:
                self._refuse(address, str(answer), is_reported=True)
        return hosts

    def _refuse(self, address: str, why: str, *, is_reported: bool) -> None:
        """Record why a worker cannot be used, and warn of it once if `is_reported`."""
        self._refused[address] = why
        if is_reported and address not in self._reported:
            self._reported.add(address)
            _warn(f"a worker of the Dask cluster is left out: {why}")


def _warn(text: str) -> None:
    print(f"slotwise: {text}", file=sys.stderr)


def _checked(client: object) -> Client:
    """The client. InputError unless it is connected and not asynchronous."""
    what = f"a {type(client).__name__}"
    if isinstance(client, Client):
        if client.status in ("running", "connecting") and not client.asynchronous:
            return client
        what = "asynchronous" if client.asynchronous else client.status
    raise InputError(
        f"{option_name('dask')} is {what}; expected a distributed.Client that is connected and"
        " not asynchronous, or the address of its scheduler"
    )


def _client(address: str) -> Client:
    """A client of the scheduler at this address. InputError if it cannot be reached."""
    _check_certificates()
    seconds = _find_seconds()
    try:
        _check_answers(address, seconds)
        return Client(  # type: ignore[no-untyped-call]
            address, set_as_default=False, timeout=seconds
        )
    except (OSError, ValueError, TypeError) as error:
        reason = str(error)
    # Collect the failed client now: once its event loop has ended, its finalizer blocks.
    gc.collect()
    remedy = (
        "state certificates that it accepts in Dask's configuration"
        f" ({', '.join(CERTIFICATES)}), or give another address"
        if address.startswith("tls://")
        else "give its address, such as tcp://127.0.0.1:8786, tls://... if it has TLS"
    )
    raise InputError(
        f"no Dask scheduler at {address!r}: {reason}; {remedy}, or a longer time in"
        f" Dask's configuration, {TIMEOUT}"
    )


def _check_answers(address: str, seconds: float) -> None:
    """OSError, ValueError or TypeError unless a scheduler answers at this address.

    Dask's client hangs on a peer that accepts a connection and sends nothing, and then cannot
    be closed. Such peers are a frozen scheduler, and the dashboard at the next port.
    """

    async def ask() -> str:
        security = Security()  # type: ignore[no-untyped-call]
        arguments = security.get_connection_args("client")  # type: ignore[no-untyped-call]
        comm: Any = await connect(  # type: ignore[no-untyped-call]
            address, timeout=seconds, **arguments
        )
        try:
            found = await send_recv(comm, op="identity")
        finally:
            comm.abort()
        return str(found["type"])

    async def ask_in_time() -> str:
        return await asyncio.wait_for(ask(), 2 * seconds)  # To connect, and to answer.

    other = "the program that listens there does not answer like a Dask scheduler"
    try:
        found = LoopRunner().run_sync(ask_in_time)  # type: ignore[no-untyped-call]
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"{other} within {2 * seconds:g} s") from error
    except (OSError, ValueError, TypeError):
        raise
    except Exception as error:  # Of Dask, which reads the data of other programs as lengths.
        raise ValueError(other) from error
    if found != "Scheduler":
        raise ValueError(f"it is the address of a Dask {found.lower()}")


def _check_certificates() -> None:
    """InputError for a certificate file of Dask's configuration that cannot be read."""
    for setting in CERTIFICATES:
        path = dask.config.get(setting, None)
        if not path or "\n" in path:  # With a newline, it is the certificate itself.
            continue
        try:
            with open(path):
                pass
        except OSError as error:
            raise InputError(
                f"{setting} in Dask's configuration is {path!r}: {error.strerror}; expected the"
                " path of a readable file"
            ) from None


def _find_seconds() -> float:
    """How long the scheduler may take to answer: Dask's setting if changed, else 5 s."""
    stated = dask.config.get(TIMEOUT)
    if stated == dask.config.get(TIMEOUT, config=dask.config.merge(*dask.config.defaults)):
        return FIND_SECONDS
    return float(parse_timedelta(stated))
