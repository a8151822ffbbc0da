"""Plans of the same two jobs by three allocators, each with its lower bound and gap."""

import slotwise
from slotwise import Job, Phase, Tasks

jobs = [
    Job("report", (Phase("map", Tasks(count=40, work=10.0), slots_min=2),)),
    Job("query", (Phase("map", Tasks(count=8, work=5.0)),)),
]

for name in ("fifo", "fair", "flex"):
    plan = slotwise.plan(jobs, name, slots=10)
    print(f"{name}: value {plan.value:.2f}, bound {plan.bound:.2f}, gap {plan.gap:.1%}")
    for piece in plan.schedule.pieces:
        print(f"  {piece.phase}: {piece.slots} slots from {piece.start:g} s to {piece.end:g} s")
