"""The command `slotwise trace`: convert traces of other systems to workload files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from slotwise.cli.application import Application
from slotwise.core.errors import InputError
from slotwise.core.files import is_same_file, refuse_foreign
from slotwise.workload.generators import draw_changes
from slotwise.workload.openb import read_nodes, read_pods
from slotwise.workload.swf import read_swf
from slotwise.workload.swim import SwimRates, racked_cluster, read_swim
from slotwise.workload.writer import MARK, write_workload

trace = Application(no_args_is_help=True, help="Import traces of other systems.")
imports = Application(no_args_is_help=True, help="Write a workload file from a trace.")
trace.add_typer(imports, name="import")


@trace.callback()
def _trace() -> None:
    """Do nothing. With a callback, typer keeps the name of a single subcommand."""


@imports.callback()
def _imports() -> None:
    """Do nothing, for the same reason."""


Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", "--out", help="The workload file to write; needed."),
]


def _checked(output: Path | None, *traces: Path) -> Path:
    """The file to write. InputError if none is named, or if it must not be replaced."""
    if output is None:
        raise InputError("-o is missing; name the workload file to write, as in -o jobs.yaml")
    for trace in traces:
        if is_same_file(output, trace):
            raise InputError(f"-o is the trace {str(trace)!r} itself; name another file")
    refuse_foreign(output, MARK.encode(), f"-o {str(output)!r}")
    return output


@imports.command(name="swim")
def _swim(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A SWIM trace, such as FB-2010.")
    ],
    output: Output = None,
    hosts: Annotated[int, typer.Option(min=1, help="Number of hosts.")] = 3000,
    slots_per_host: Annotated[
        int, typer.Option(min=1, help="Slots of each host, for any kind of task.")
    ] = 2,
    hosts_per_rack: Annotated[
        int, typer.Option(min=1, help="Number of hosts in each rack.")
    ] = 40,
    replicas: Annotated[
        int, typer.Option(min=0, help="Hosts that hold each block; 0: input is on all hosts.")
    ] = 3,
    first: Annotated[
        int | None, typer.Option(min=1, help="Import only this number of jobs, from the start.")
    ] = None,
    host_changes: Annotated[
        int,
        typer.Option(
            min=0,
            help="Add, lose and drain hosts this number of times, at random instants from 0 to"
            " the last arrival. At least half of the hosts stay.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random changes of hosts.")] = 0,
) -> None:
    """Import a SWIM trace: convert bytes of input, shuffle and output to phases and tasks.

    `slotwise trace import swim FB-2010_samples_24_times_1hr_0.tsv -o day.yaml --first 1000`
    """
    output = _checked(output, file)
    rates = SwimRates()
    jobs = read_swim(file, rates, first=first)
    cluster = racked_cluster(hosts, slots=slots_per_host, hosts_a_rack=hosts_per_rack)
    latest = max(job.arrival for job in jobs)
    rng = np.random.default_rng(seed)
    write_workload(
        jobs,
        output,
        cluster=cluster,
        replicas=replicas,
        block_bytes=rates.block_bytes,
        changes=draw_changes(cluster, host_changes, latest, rng),
    )
    print(output)


@imports.command(name="openb")
def _openb(
    pods: Annotated[Path, typer.Argument(metavar="PODS", help="The list of pods, in CSV.")],
    nodes: Annotated[Path, typer.Argument(metavar="NODES", help="The list of nodes, in CSV.")],
    output: Output = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Import only this number of jobs, from the start.")
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(min=1, help="Take only this number of hosts, of all sizes in proportion."),
    ] = None,
) -> None:
    """Import the trace of Alibaba with GPUs: a pod is a job of one task, a node a host.

    The CPUs of a pod are rounded up to whole slots. Pods that never began or ended, of no
    length, and too large for every host are left out.

    `slotwise trace import openb pods.csv nodes.csv -o gpu.yaml --jobs 300 --hosts 20`
    """
    output = _checked(output, pods, nodes)
    cluster = read_nodes(nodes, hosts=hosts)
    found = read_pods(pods, cluster, first=jobs)
    write_workload(found.jobs, output, cluster=cluster)
    print(output)
    print(
        f"{len(found.jobs)} jobs; left out: {found.endless} that never began or ended,"
        f" {found.empty} of no length, {found.large} too large for every host"
    )


@imports.command(name="swf")
def _swf(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A log in the Standard Workload Format."),
    ],
    output: Output = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Import only this number of jobs, from the start.")
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            min=1, help="Hosts that have the processors; jobs may be gangs over them."
        ),
    ] = 1,
    processors: Annotated[
        int | None,
        typer.Option(min=1, help="Processors in all [default: MaxProcs of the log]."),
    ] = None,
    true_times: Annotated[
        bool, typer.Option("--true-times", help="Jobs request the time that they run.")
    ] = False,
) -> None:
    """Import a log of a parallel computer: rigid jobs with their requested times.

    A job is a task in as many slots as it requested processors. Jobs without a run time or
    processors, and those too large for the computer, are left out.

    `slotwise trace import swf KTH-SP2.swf -o kth.yaml --true-times`
    """
    output = _checked(output, file)
    found = read_swf(
        file, nodes=nodes, processors=processors, true_times=true_times, first=jobs
    )
    write_workload(found.jobs, output, cluster=found.cluster)
    print(output)
    print(
        f"{len(found.jobs)} jobs; left out: {found.unknown} without a run time or processors,"
        f" {found.large} too large for the computer"
    )
