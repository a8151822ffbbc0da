"""Delay scheduling: tasks wait briefly for a host that holds their input."""

import slotwise
from slotwise import Cluster, Host, Job, Phase, Simulation, Tasks, Workload

hosts = tuple(Host(f"h{n}", {"task": 2}, rack=f"r{n % 4}") for n in range(20))
jobs = tuple(
    Job(f"job-{n}", (Phase("map", Tasks(count=40, work=10.0)),), arrival=2.0 * n)
    for n in range(10)
)
workload = Workload(jobs, Cluster(hosts), replicas=3)
truth = Simulation(seed=1, noise=0.3, remote_factor=2.0)

for assigner in ("greedy", "delay"):
    result = slotwise.simulate(workload, "fair", simulation=truth, assigner=assigner)
    near = result.metrics["locality"]["node"]
    print(f"{assigner}: {near:.0%} of the tasks on a host of their input,", end=" ")
    print(f"mean response {result.metrics['response_mean']:.1f} s")
