"""A function written for any executor runs on a process pool and on a session."""

from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from math import comb

import slotwise


def largest(executor: Executor) -> int:
    futures = [executor.submit(comb, 12, number) for number in range(13)]
    return max(future.result() for future in as_completed(futures))


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as executor:
        print(largest(executor))
    session = slotwise.Session(2)
    with session, session.executor(pool="people", deadline=60) as executor:
        print(largest(executor))
        print(list(executor.map(pow, range(5), range(5))))
