"""Runs to report: few jobs, many jobs, failures, hostile names."""

from random import Random

import pytest
import vl_convert

from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Header, Log
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.report.page import write_pictures
from slotwise.insight.report.reported import ReportedRun
from slotwise.policy.scheduler import make_scheduler

make_bundle = vl_convert.javascript_bundle

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "[bold]job[/bold] & 'co' \\ \u2028 <!--",
]
REASON = "ValueError: <b>bad</b> </script> line [red]3[/red]"


def one_failure(launch):
    """The first task of the last hostile job always fails; another one does so once."""
    if launch.phase.job == HOSTILE[2] and launch.task == 0:
        return Fault(REASON, after=0.5)
    if launch.task == 1 and launch.attempt == 1:
        return Fault("host went away", after=0.3, lost=True)
    return None


def make_run(name, jobs, hosts=2, slots=2, fault=None, objective="response", outages=()):
    """One simulated run of jobs of the given names."""
    rng = Random(5)
    cluster = Cluster(tuple(Host(f"h{number}", {"task": slots}) for number in range(hosts)))
    made = []
    for number, job in enumerate(jobs):
        first = Phase("map", Tasks(rng.randint(2, 8), 5.0))
        last = Phase("reduce", Tasks(2, 3.0), after=frozenset({"map"}))
        made.append(Job(job, (first, last), float(number), pool=f"pool{number % 2}"))
    aggregate = "max" if objective == "makespan" else "sum"
    log = Log(
        Header(
            "simulated",
            {"name": name, "assigner": "greedy"},
            {"penalty": objective, "aggregate": aggregate},
            cluster,
            (),
            len(jobs),
        )
    )
    backend = SimulatedBackend(
        cluster, made, Simulation(seed=1, noise=0.3, fault=fault, outages=outages)
    )
    state = State(cluster)
    run(make_scheduler(name, "greedy"), backend, state, log)
    return ReportedRun(name, "simulated", log, MetricsCollector.of_log(log).outcome())


@pytest.fixture(scope="session")
def real_bundle():
    """The library that draws; it takes seconds to make."""
    return make_bundle()


@pytest.fixture(scope="session", autouse=True)
def small_bundle(pytestconfig):
    """By default pages contain only a sentence in its place."""
    with pytest.MonkeyPatch.context() as patched:
        if not pytestconfig.getoption("--slow"):
            patched.setattr(vl_convert, "javascript_bundle", lambda: "/* The library. */")
        yield


@pytest.fixture(scope="session")
def make():
    """Makes one run."""
    return make_run


@pytest.fixture(scope="session")
def three_runs():
    """Three jobs of plain names under three schedulers."""
    return [make_run(name, ["q1", "q2", "q3"]) for name in ("fifo", "fair", "flex")]


@pytest.fixture(scope="session")
def hostile_runs():
    """Jobs whose names and failures try to break out of the page, under two schedulers."""
    return [make_run(name, HOSTILE, fault=one_failure) for name in ("fifo", "fair")]


@pytest.fixture(scope="session")
def hostile_pictures(hostile_runs, tmp_path_factory):
    """The files of the pictures of these runs."""
    return write_pictures(hostile_runs, tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def hostile_names():
    """The names of those jobs."""
    return HOSTILE


@pytest.fixture(scope="session")
def hostile_reason():
    """Why one of them fails."""
    return REASON
