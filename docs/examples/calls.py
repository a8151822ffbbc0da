"""Plain Python calls as tasks: six squares, then two cubes."""

import slotwise
from slotwise import Calls, Job, Phase, Tasks

job = Job(
    "numbers",
    (
        Phase("square", Tasks(count=6)),
        Phase("cube", Tasks(count=2), after=frozenset({"square"})),
    ),
)
calls = Calls(job, {"square": lambda task: task**2, "cube": lambda task: task**3})
result = slotwise.run([calls], slots=2)
print("failed:", result.failed)
print("square:", [calls.results["square"][task] for task in range(6)])
print("cube:", [calls.results["cube"][task] for task in range(2)])
