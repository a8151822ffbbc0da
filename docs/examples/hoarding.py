"""A large job hoards the reduce slots, unless copying is split off."""

import slotwise
from slotwise import Cluster, Host, Job, Phase, Shuffle, Tasks, Workload


def job(name: str, maps: int, reduces: int, arrival: float = 0.0) -> Job:
    """A job with maps of 10 s, and reduces that copy for 3 s and compute for 2 s."""
    mapping = Phase("map", Tasks(maps, 10.0), "map")
    reducing = Phase("reduce", Tasks(reduces, 2.0), "reduce", after="map", copy=3.0)
    return Job(name, (mapping, reducing), arrival)


hosts = tuple(Host(f"h{n}", {"map": 2, "reduce": 1}) for n in range(4))
jobs = (job("large", 80, 12), job("small", 4, 2, arrival=15.0))

for shuffle in (Shuffle(), Shuffle(slow_start=0.05), Shuffle(slow_start=0.05, split=True)):
    workload = Workload(jobs, Cluster(hosts), shuffle=shuffle)
    result = slotwise.simulate(workload, "fair")
    ends = (f"{name} done at {times['completion']:g} s" for name, times in result.jobs.items())
    print(f"slow start {shuffle.slow_start}, split {shuffle.split}:", *ends, sep="  ")
