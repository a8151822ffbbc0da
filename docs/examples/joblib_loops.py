"""Two loops of joblib share two slots: each is one job of its pool."""

from math import comb

import joblib

import slotwise
import slotwise.integrations.joblib  # Registers the backend.


def row(number: int) -> list[int]:
    """The calls of a loop within a call stay in its slot."""
    inner = joblib.Parallel(n_jobs=2)
    return inner(joblib.delayed(comb)(number, k) for k in range(number + 1))


if __name__ == "__main__":
    with slotwise.Session(2, log="joblib.jsonl") as session:
        with joblib.parallel_config("slotwise", session=session, pool="research", name="rows"):
            print(joblib.Parallel()(joblib.delayed(row)(n) for n in range(4)))
        with joblib.parallel_config("slotwise", session=session, pool="reports", name="sums"):
            print(joblib.Parallel()(joblib.delayed(sum)(range(n)) for n in range(6)))
    for turn in slotwise.read_log("joblib.jsonl").turns:
        for event in turn.events:
            if type(event).__name__ == "JobArrived":
                print(event.job.id, "in pool", event.job.pool)
