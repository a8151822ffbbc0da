"""The command `slotwise serve`: the server of the user."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from slotwise.cli.defaults import Defaults, ServiceEntry, user_file
from slotwise.cli.options import ResourcesText, SlotsText, parse_slots
from slotwise.cli.parsing import parse_resources
from slotwise.core.errors import InputError, MissingExtraError
from slotwise.policy.scheduler import ALLOCATORS, BACKFILLINGS
from slotwise.service.clients.transport import NoServerError, Transport
from slotwise.service.settings import NetworkSettings, Settings
from slotwise.service.users.access import SUBMITS, User, roles_of
from slotwise.service.wire import service_folder
from slotwise.workload.file import read_sharing

OF_TEAM = "fair"
"""The scheduler of a service with users or pools, without an objective, which it would ignore.

`flex` serves equal jobs by arrival: a pool without a min share waits for the jobs of others.
"""

OF_NETWORK = ("listen", "certificate", "key", "plain")
"""The options for a network."""

START_SECONDS = 30.0
"""How long a server in the background may take to start."""


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pools, scheduler and so on, as in slotwise.toml [default: the user's]. SIGHUP"
            " reads it again.",
        ),
    ] = None,
    slots: SlotsText = None,
    resources: ResourcesText = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Run on the hosts of the Dask cluster with the scheduler at this address.",
        ),
    ] = None,
    dask_slots: Annotated[
        int | None,
        typer.Option(
            "--dask-slots", metavar="COUNT", min=1, help="Most slots of a Dask worker."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help=f"{', '.join((*ALLOCATORS, *BACKFILLINGS))}."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The folder for jobs and socket, on a local disk [default: service in the"
            " state folder of slotwise].",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Serve the users of the configuration on a network, too, as at 0.0.0.0:8443.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate for TLS, PEM.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its key [default: in the file of the certificate]."),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Do without TLS, though other hosts connect: tokens pass unencrypted.",
        ),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option("--stop", help="Stop the server that runs, as SIGTERM does, and wait."),
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Return when the server has started.")
    ] = False,
) -> None:
    """Serve jobs that `slotwise submit` and programs send, until SIGTERM or Ctrl-C.

    Jobs are kept when the server ends; commands that run continue, and the next server finds
    them. SIGHUP reads the configuration again.

    `slotwise serve --slots 8`

    `slotwise serve --config team.toml --background`

    `slotwise serve --listen 127.0.0.1:8443`

    `slotwise serve --stop`
    """
    place = (service_folder() if folder is None else folder).absolute()
    if stop:
        _stop(place)
        return
    given = {
        "slots": parse_slots(slots),
        "resources": parse_resources(resources),
        "dask": dask,
        "dask_slots": dask_slots,
        "scheduler": scheduler,
        "listen": listen,
        "certificate": certificate,
        "key": key,
        "plain": plain or None,
    }
    settings = settings_of(config, given)  # A mistake is reported before anything begins.
    if background:
        _start(place)
        return
    try:
        from slotwise.service.http.serving import serve_quietly
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "starlette", "anyio", "prometheus_client"):
            raise
        raise MissingExtraError("slotwise serve", "serve") from error
    first = [settings]

    def read() -> Settings:
        return first.pop() if first else settings_of(config, given)

    code = serve_quietly(place, read, path=place / "socket")
    if code:
        raise typer.Exit(code)


def settings_of(config: Path | None, given: Mapping[str, Any]) -> Settings:
    """The settings of a server: options before what its file states. InputError."""
    file = user_file() if config is None else config
    if config is not None and not file.is_file():
        raise InputError(f"--config {str(config)!r}: there is no such file")
    defaults = Defaults.stated_in(file) if file.is_file() else Defaults()
    options = {**defaults.options}
    service = options.pop("service", None)
    stated = {
        "slots": defaults.slots,
        "resources": defaults.resources,
        "scheduler": options.pop("scheduler", None),
        **{name: value for name, value in given.items() if value is not None},
    }
    has_objective, has_pools = (name in defaults.workload for name in ("objective", "pools"))
    is_team = has_pools or bool(service and service.users)
    if is_team and not has_objective and stated["scheduler"] is None:
        stated["scheduler"] = OF_TEAM
    of_network = {name: stated.pop(name, None) for name in OF_NETWORK}
    kinds = stated["slots"] if isinstance(stated["slots"], Mapping) else ()
    # The hosts of a Dask cluster, which have other resources, are not known yet.
    resources = None if stated.get("dask") else stated["resources"] or ()
    try:
        pools, objective, preemption = read_sharing(defaults.workload, kinds, resources)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if not has_pools:
        pools = ()
    stated |= {
        "drain_seconds": service and service.drain,
        "keep_days": service and service.keep_days,
        "keep_jobs": service and service.keep_jobs,
        "output_max": service and service.output_max,
        "run_as": service and service.run_as,
        "users": service and _users_of(service),
        "network": _network_of(service, file.parent, of_network),
    }
    return Settings(
        pools=pools,
        objective=objective if has_objective else None,
        preemption=preemption,
        options={name: value for name, value in options.items() if value is not None},
        **{name: value for name, value in stated.items() if value is not None},
    )


def _users_of(service: ServiceEntry) -> dict[str, User]:
    """The users of the configuration. InputError for one that cannot be."""
    return {
        name: User(
            name,
            one.account or name,
            SUBMITS if one.roles is None else roles_of(name, one.roles),
            one.jobs_max,
        )
        for name, one in service.users.items()
    }


def _network_of(
    service: ServiceEntry | None, folder: Path, given: Mapping[str, Any]
) -> NetworkSettings | None:
    """Where the server listens besides its socket; paths of its file begin at its folder."""
    service = service or ServiceEntry()
    listen = given["listen"] or service.listen
    certificate, key = service.certificate, service.key
    files = [None if path is None else folder / path for path in (certificate, key)]
    if given["certificate"] is not None:
        files = [given["certificate"], given["key"]]
    if listen is None:
        if files != [None, None] or given["plain"]:
            raise InputError("certificate, key and plain are for a network; state listen, too")
        return None
    plain = given["plain"] or service.plain
    return NetworkSettings.of(
        listen, certificate=files[0], key=files[1], plain=plain, hosts=tuple(service.hosts)
    )


def _start(folder: Path) -> None:
    """Start a server in the background with the options of this command, and wait for it."""
    url = f"unix:{folder / 'socket'}"
    arguments = [word for word in sys.argv[1:] if word != "--background"]
    folder.mkdir(0o700, parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "slotwise", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise InputError(f"the server has not started: {_last_line(log)}")
        try:
            found = Transport(url).get("/v1")
        except NoServerError:
            time.sleep(0.05)
            continue
        if found["pid"] == process.pid:
            typer.echo(f"the server has started as process {process.pid}; it writes to {log}")
            return
        time.sleep(0.05)
    raise InputError(f"the server has not answered within {START_SECONDS:g} s; see {log}")


def _stop(folder: Path) -> None:
    """Stop the server of a folder in order, and wait for its end."""
    transport = Transport(f"unix:{folder / 'socket'}")
    pid = transport.get("/v1")["pid"]
    transport.post("/v1/stop")
    transport.close()
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)
    typer.echo("the server has stopped; jobs are kept, and commands that run continue")


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("slotwise: ") if lines else os.fspath(log)
