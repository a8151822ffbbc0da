"""Jobs that are DAGs: plans of whole jobs, compared with plans of the ready phases."""

import slotwise
from slotwise import Job, Phase, Tasks


def phase(name, tasks, seconds, *after):
    return Phase(name, Tasks(tasks, seconds), after=frozenset(after))


train = Job(
    "train",
    (
        phase("clean", 12, 4.0),
        phase("features", 8, 3.0, "clean"),
        phase("fit", 2, 20.0, "features"),
        phase("check", 4, 2.0, "fit"),
    ),
)
query = Job(
    "query",
    (
        phase("orders", 6, 2.0),
        phase("items", 8, 2.0),
        phase("join", 4, 3.0, "orders", "items"),
        phase("top", 1, 2.0, "join"),
    ),
)
report = Job(
    "report",
    (
        phase("read", 4, 5.0),
        phase("sums", 2, 4.0, "read"),
        phase("plots", 3, 2.0, "read"),
        phase("page", 1, 1.0, "sums", "plots"),
    ),
)
jobs = [train, query, report]

for name in ("fifo", "fair", "flex", "flowflex-paper", "flowflex"):
    plan = slotwise.plan(jobs, name, slots=4, budget_steps=1000)
    ends = ", ".join(f"{job} {at:g} s" for job, at in plan.schedule.completion().items())
    proven = ", proven optimal" if plan.is_exact else ""
    print(f"{name}: value {plan.value:g}, bound {plan.bound:g}{proven}: {ends}")

# Two parallel phases, and one after the first: pseudo-jobs add a barrier between them.
barrier = Job("barrier", (phase("a", 2, 1.0), phase("b", 1, 1.0), phase("c", 1, 9.0, "a")))
for name in ("flowflex-paper", "flowflex"):
    plan = slotwise.plan([barrier], name, slots=2, budget_steps=1000)
    print(f"{name}: {plan.value:g}, bound {plan.bound:g}")
