"""One simulated future: when jobs start and end, in machine code where numba is installed.

It simulates the scheduler in use in aggregate. Resources are those of all hosts together, the
tasks of a phase are alike within one course, and several tasks of a phase may be simulated as
one that runs longer. The order of jobs follows the scheduler: a fixed order, shares of pools
and jobs, the service that jobs had, or backfilling. What this leaves out is corrected by the
errors of earlier forecasts (`calibration.py`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import NamedTuple

from slotwise.policy.compiled import Numbers

ORDER, SHARES, LEAST, EASY, EASY_SHORTEST = range(5)
"""How phases are served: in a fixed order; by the shares of pools and phases; those first that
had least service; in a fixed order with backfilling, by that order or the shortest first."""

TRIED = 16
"""How many phases that do not fit are passed over in a pool at one instant."""

BACKFILLED, TRIES = 100, 1_000_000
"""How many phases are tried for backfilling at one instant: `BACKFILLED`, and `TRIES` by the
number of phases. Up to 1,000 phases, these are all."""

STARVING = -1e12
"""The rank of a pool below its min share, to which its part of that share is added."""

FITS = 1e-9
"""Tolerance for sums of resources."""


# The columns of tables. Of phases, in floats; `Tables` explains them:

ARRIVAL, WIDTH, WORK, EXPECTED, KEY, WEIGHT, SERVED, RANK, OF_PHASE = range(9)

# Of phases, in ints:

JOB, POOL, BATCH, ROOM, WAITS, PENDING, HELD, QUEUED = range(8)

# Of pools: shares and what is held, in slots; of the phase that comes next in its queue what
# orders it among pools, infinity for none, and among equals; whether that is to be read again,
# and how many phases that do not fit were passed over at this instant.

POOL_WEIGHT, POOL_MIN, POOL_MAX, POOL_HELD, NEXT_RANK, NEXT_KEY, IS_STALE, PASSED, OF_POOL = (
    range(9)
)


# Of promises: when what is reserved begins and ends; the slots; the first and last phase of the
# job; the slots that others may hold when it begins, and those that tasks hold which are
# assumed to run then.

BEGINS, UNTIL, RESERVED, FIRST, LAST, OTHERS_MAX, OTHERS, OF_PROMISE = range(8)


class Tables(NamedTuple):
    """What a course reads and changes; machine code takes it whole.

    mode          how phases are served
    kinds         the first of the resources, this number, are kinds of slots
    ints, floats  a row for each phase, with its job and pool, and
                  - the slots of a task (`WIDTH`), and the most that may run at once (`ROOM`)
                  - tasks that have not begun (`PENDING`), of which `BATCH` run as one, one
                    after another; those that run (`HELD`)
                  - when it is ready (`ARRIVAL`), if later; how many phases it waits for
                  - seconds of a task in this course (`WORK`), and as the scheduler assumes
                  - its place in a fixed order (`KEY`), lower ones first, and its weight
                  - the slot-seconds that it got; what orders it in its queue, if it is in one
    need          what a task takes: a row for each phase, a column for each resource
    free          what is free of each resource
    pools         a row for each pool, all of them stale
    times         by job, start and end; a start that is set stays
    """

    mode: int
    kinds: int
    ints: Numbers
    floats: Numbers
    need: Numbers
    free: Numbers
    pools: Numbers
    times: Numbers


def simulate(
    now: float,
    tables: Tables,
    promises: Numbers,
    later: Numbers,
    successors_from: Numbers,
    successors: Numbers,
    running: Numbers,
    running_ends: Numbers,
    left: Numbers,
) -> int:
    """Simulate from `now` until all jobs are over, or nothing can run. The number of events.

    It writes instants into the times of `tables`, and changes most of the others, and `left`.

    promises      a row for each promise of a date; none under backfilling
    later         the phases that are ready after `now`, in order of that instant
    successors    those of phase p are from `successors_from[p]` to `successors_from[p + 1]`
    running       by running task, its phase; when it ends, and is expected to end
    left          by job, the phases that are not done

    O(log n) for each task that it simulates; with n waiting phases up to O(n) under backfilling
    (`TRIES`).
    """
    ints, floats, pools, times = tables.ints, tables.floats, tables.pools, tables.times
    is_easy = tables.mode in (EASY, EASY_SHORTEST)
    count = len(ints)
    ends = [(running_ends[a, 0], running[a], running_ends[a, 1]) for a in range(len(running))]
    heapify(ends)
    for a, p in enumerate(running):
        hold(p, floats[p, WIDTH], running_ends[a, 1], promises)
        ints[p, HELD] += 1
        floats[p, SERVED] += floats[p, WORK] * floats[p, WIDTH]
        pools[ints[p, POOL], POOL_HELD] += floats[p, WIDTH]
    ready = [p for p in range(count) if ints[p, WAITS] == 0 and floats[p, ARRIVAL] <= now]
    # Who waits for a launch: a heap for each pool, or for backfilling lines in two orders.
    queues = [[(0.0, 0.0, 0) for _ in range(0)] for _ in range(len(pools))]
    lines = [[count for _ in range(count + 2 if is_easy else 0)] for _ in range(2)]
    next_later, events, at = 0, 0, now
    jobs_left = 0
    for j in range(len(left)):
        jobs_left += left[j] > 0
    while jobs_left > 0:
        events += 1
        if is_easy:
            if len(ready) > 0:
                enter_lines(tables, ready, lines)
            backfill(tables, at, lines, ends)
        else:
            enter_queues(tables, ready, queues)
            serve(tables, promises, at, queues, ends)
        ready.clear()
        due = next_due(at, promises) if len(promises) > 0 else inf
        at = ends[0][0] if len(ends) > 0 else inf
        if next_later < len(later):
            at = min(at, floats[later[next_later], ARRIVAL])
        at = min(at, due)
        if at == inf:
            break
        while next_later < len(later) and floats[later[next_later], ARRIVAL] <= at:
            if ints[later[next_later], WAITS] == 0:
                ready.append(later[next_later])
            next_later += 1
        while len(ends) > 0 and ends[0][0] <= at:
            _, p, assumed = heappop(ends)
            if len(promises) > 0:
                hold(p, -floats[p, WIDTH], assumed, promises)
            if end(tables, p):
                for i in range(successors_from[p], successors_from[p + 1]):
                    q = successors[i]
                    ints[q, WAITS] -= 1
                    if ints[q, WAITS] == 0 and floats[q, ARRIVAL] <= at:
                        ready.append(q)
                j = ints[p, JOB]
                left[j] -= 1
                if left[j] == 0:
                    times[j, 1] = at
                    jobs_left -= 1
            elif ints[p, PENDING] > 0:
                ready.append(p)
    return events


def end(tables: Tables, p: int) -> bool:
    """A running task of a phase ends. Whether the phase is done."""
    ints, floats, need, free = tables.ints, tables.floats, tables.need, tables.free
    pools = tables.pools
    ints[p, HELD] -= 1
    pools[ints[p, POOL], POOL_HELD] -= floats[p, WIDTH]
    pools[ints[p, POOL], IS_STALE] = 1.0
    for r in range(len(free)):
        free[r] += need[p, r]
    is_done: bool = ints[p, PENDING] == 0 and ints[p, HELD] == 0
    return is_done


def launch(tables: Tables, p: int, at: float, ends: Numbers, most: int) -> float:
    """A batch of tasks of a phase begins, of this number at most. Its assumed end."""
    ints, floats, need, free = tables.ints, tables.floats, tables.need, tables.free
    pools, times = tables.pools, tables.times
    count, j = min(ints[p, BATCH], ints[p, PENDING], most), ints[p, JOB]
    ints[p, PENDING] -= count
    ints[p, HELD] += 1
    floats[p, SERVED] += floats[p, WORK] * count * floats[p, WIDTH]
    pools[ints[p, POOL], POOL_HELD] += floats[p, WIDTH]
    pools[ints[p, POOL], IS_STALE] = 1.0
    for r in range(len(free)):
        free[r] -= need[p, r]
    assumed = at + floats[p, EXPECTED] * count
    heappush(ends, (at + floats[p, WORK] * count, p, assumed))
    times[j, 0] = min(times[j, 0], at)
    return float(assumed)


def fits(p: int, need: Numbers, amounts: Numbers) -> bool:
    """Whether a task of a phase needs no more than these amounts."""
    for r in range(len(amounts)):  # noqa: SIM110 numba does not know `all` of a generator.
        if need[p, r] > amounts[r] + FITS:
            return False
    return True


# Promises. The slots of each are kept free from the instant on at which they are needed.


def next_due(at: float, promises: Numbers) -> float:
    """When the next promise is due, or is over, so that others get its slots."""
    found = inf
    for k in range(len(promises)):
        for column in (BEGINS, UNTIL):
            if promises[k, column] > at:
                found = min(found, promises[k, column])
    return found


def hold(p: int, slots: float, assumed: float, promises: Numbers) -> None:
    """A phase holds more or less slots, by a task that is assumed to run until an instant."""
    for k in range(len(promises)):
        is_own = promises[k, FIRST] <= p <= promises[k, LAST]
        if assumed > promises[k, BEGINS] and not is_own:
            promises[k, OTHERS] += slots


def permitted(tables: Tables, promises: Numbers, p: int, at: float) -> int:
    """How many tasks of a phase may run one after another beside what is promised."""
    ints, floats = tables.ints, tables.floats
    most = int(ints[p, BATCH])
    for k in range(len(promises)):
        first, last = int(promises[k, FIRST]), int(promises[k, LAST])
        room = promises[k, OTHERS_MAX] - promises[k, OTHERS] - floats[p, WIDTH]
        if room >= -FITS or first <= p <= last or promises[k, UNTIL] <= at:
            continue
        waits = 0
        for q in range(first, last + 1):
            waits += ints[q, PENDING]
        if waits > 0:
            left = max(0.0, promises[k, BEGINS] - at)
            most = int(min(most, left // max(floats[p, EXPECTED], FITS)))
    return most


def serve_due(tables: Tables, promises: Numbers, at: float, ends: Numbers) -> list[int]:
    """Launch tasks of promised jobs whose slots are guaranteed now. The phases of these."""
    ints, floats, need, free = tables.ints, tables.floats, tables.need, tables.free
    begun = [0 for _ in range(0)]
    for k in range(len(promises)):
        first, last, held = int(promises[k, FIRST]), int(promises[k, LAST]), 0.0
        for p in range(first, last + 1):
            held += ints[p, HELD] * floats[p, WIDTH]
        if promises[k, BEGINS] > at:
            continue
        for p in range(first, last + 1):
            while (
                ints[p, PENDING] > 0
                and ints[p, WAITS] == 0
                and ints[p, HELD] < ints[p, ROOM]
                and held + floats[p, WIDTH] <= promises[k, RESERVED]
                and fits(p, need, free)
            ):
                assumed = launch(tables, p, at, ends, ints[p, BATCH])
                hold(p, floats[p, WIDTH], assumed, promises)
                held += floats[p, WIDTH]
                begun.append(p)
    return begun


def has_free(kinds: int, free: Numbers) -> bool:
    """Whether a slot is free."""
    for r in range(kinds):  # noqa: SIM110 as above
        if free[r] > FITS:
            return True
    return False


# Queues of pools. An entry has the rank of a phase, what decides among equals, and the phase.
# It counts for nothing if the phase has got another rank since, or has left the queue.


def entry_of(mode: int, p: int, ints: Numbers, floats: Numbers) -> tuple[float, float, int]:
    """Where a phase comes in the queue of its pool."""
    if mode == SHARES:
        weight = floats[p, WEIGHT]
        return (ints[p, HELD] * floats[p, WIDTH] / weight, floats[p, SERVED] / weight, p)
    if mode == LEAST:
        return (floats[p, SERVED] / floats[p, WEIGHT], floats[p, KEY], p)
    return (floats[p, KEY], floats[p, KEY], p)


def enter_queues(tables: Tables, ready: Numbers, queues: Numbers) -> None:
    """The ready phases enter the queues of their pools, or get another rank there."""
    mode, ints, floats, pools = tables.mode, tables.ints, tables.floats, tables.pools
    for p in ready:
        if ints[p, PENDING] > 0:
            entry = entry_of(mode, p, ints, floats)
            if entry[0] != floats[p, RANK] or not ints[p, QUEUED]:
                floats[p, RANK] = entry[0]
                heappush(queues[ints[p, POOL]], entry)
                pools[ints[p, POOL], IS_STALE] = 1.0
            ints[p, QUEUED] = 1


def serve(tables: Tables, promises: Numbers, at: float, queues: Numbers, ends: Numbers) -> None:
    """Launch what is promised and due, then what comes first, by pool and by rank."""
    if len(promises) > 0:
        enter_queues(tables, serve_due(tables, promises, at, ends), queues)
    ints, floats, need, free = tables.ints, tables.floats, tables.need, tables.free
    mode, pools = tables.mode, tables.pools
    aside = [(0.0, 0.0, 0) for _ in range(0)]
    while has_free(tables.kinds, free):
        q = best_pool(mode, ints, floats, pools, queues)
        if q < 0:
            break
        queue = queues[q]
        p = queue[0][2]
        most = ints[p, BATCH] if fits(p, need, free) else 0
        if most > 0 and len(promises) > 0:
            most = permitted(tables, promises, p, at)
        if most == 0:
            aside.append(heappop(queue))
            pools[q, PASSED] += 1.0
            pools[q, IS_STALE] = 1.0
            continue
        assumed = launch(tables, p, at, ends, most)
        if len(promises) > 0:
            hold(p, floats[p, WIDTH], assumed, promises)
        if mode != ORDER:
            entry = entry_of(mode, p, ints, floats)
            floats[p, RANK] = entry[0]
            heapreplace(queue, entry)
    for entry in aside:
        q = ints[entry[2], POOL]
        heappush(queues[q], entry)
        pools[q, PASSED], pools[q, IS_STALE] = 0.0, 1.0


def best_pool(
    mode: int, ints: Numbers, floats: Numbers, pools: Numbers, queues: Numbers
) -> int:
    """The pool that is served next, or -1."""
    best, best_rank, best_key = -1, inf, inf
    for q in range(len(pools)):
        if pools[q, IS_STALE]:
            pools[q, IS_STALE] = 0.0
            read_next(mode, q, ints, floats, pools, queues[q])
        rank, key = pools[q, NEXT_RANK], pools[q, NEXT_KEY]
        if rank < best_rank or (rank == best_rank and key < best_key):
            best, best_rank, best_key = q, rank, key
    return best


def read_next(
    mode: int, q: int, ints: Numbers, floats: Numbers, pools: Numbers, queue: Numbers
) -> None:
    """Note which phase of a pool comes next; entries that count for nothing leave the queue."""
    held, pools[q, NEXT_RANK], pools[q, NEXT_KEY] = pools[q, POOL_HELD], inf, inf
    while len(queue) > 0:
        p = queue[0][2]
        is_current = ints[p, QUEUED] > 0 and queue[0][0] == floats[p, RANK]
        if is_current and ints[p, PENDING] > 0 and ints[p, HELD] < ints[p, ROOM]:
            break
        heappop(queue)
        if is_current:
            ints[p, QUEUED] = 0
    if len(queue) == 0 or pools[q, PASSED] >= TRIED or held >= pools[q, POOL_MAX] - FITS:
        return
    rank, pools[q, NEXT_KEY] = queue[0][0], queue[0][1]
    if held < pools[q, POOL_MIN] - FITS:
        rank = STARVING + held / pools[q, POOL_MIN]
    elif mode == SHARES:
        rank = held / pools[q, POOL_WEIGHT]
    pools[q, NEXT_RANK] = rank


# Lines for backfilling. After each phase comes the next one. The number of phases stands for
# none: after that place comes the first one. The last place has the last one.


def enter_lines(tables: Tables, ready: Numbers, lines: Numbers) -> None:
    """The ready phases enter the line of the fixed order, and that of expected times."""
    ints, floats, pools = tables.ints, tables.floats, tables.pools
    new = [0 for _ in range(0)]
    for p in ready:
        is_closed = pools[ints[p, POOL], POOL_MAX] < floats[p, WIDTH]
        if not ints[p, QUEUED] and ints[p, PENDING] > 0 and not is_closed:
            ints[p, QUEUED] = 1
            new.append(p)
    insert_all(new, KEY, floats, lines[0])
    if tables.mode == EASY_SHORTEST:
        insert_all(new, EXPECTED, floats, lines[1])


def insert_all(new: Numbers, column: int, floats: Numbers, after: Numbers) -> None:
    """Insert phases into a line that is in order of a column. O(line), O(1) at its end."""
    none = len(floats)
    place = none
    in_order = [(floats[p, column], p) for p in new]
    in_order.sort()
    for value, p in in_order:
        last = after[none + 1]
        if last != none and floats[last, column] <= value:
            place = last
        while after[place] != none and floats[after[place], column] <= value:
            place = after[place]
        after[p], after[place] = after[place], p
        place = p
        if after[p] == none:
            after[none + 1] = p


def remove_after(place: int, none: int, after: Numbers) -> None:
    """Remove the phase after a place of a line."""
    after[place] = after[after[place]]
    if after[place] == none:
        after[none + 1] = place


def backfill(tables: Tables, at: float, lines: Numbers, ends: Numbers) -> None:
    """Launch those that come first while they fit, then others that do not delay the next."""
    ints, floats, need, free = tables.ints, tables.floats, tables.need, tables.free
    none, after = len(ints), lines[0]
    while after[none] != none:
        p = after[none]
        if ints[p, PENDING] == 0:
            remove_after(none, none, after)
        elif ints[p, HELD] < ints[p, ROOM] and fits(p, need, free):
            launch(tables, p, at, ends, ints[p, BATCH])
        else:
            break
    first = after[none]
    if tables.mode == EASY_SHORTEST:
        after = lines[1]
    if first == none or not has_free(tables.kinds, free):
        return
    place = next_fit(tables, none, first, after)
    if place < 0:
        return
    spare = free.copy()
    shadow = reserve(first, at, need, spare, ends)
    for _ in range(BACKFILLED + TRIES // none):
        p = after[place]
        if p == none or not has_free(tables.kinds, free):
            break
        if ints[p, PENDING] == 0:
            remove_after(place, none, after)
            continue
        can_begin = p != first and ints[p, HELD] < ints[p, ROOM] and fits(p, need, free)
        count = min(ints[p, BATCH], ints[p, PENDING])
        is_short = at + floats[p, EXPECTED] * count <= shadow
        if can_begin and (is_short or fits(p, need, spare)):
            launch(tables, p, at, ends, ints[p, BATCH])
            for r in range(len(spare)):
                spare[r] -= 0.0 if is_short else need[p, r]
        else:
            place = p


def next_fit(tables: Tables, place: int, first: int, after: Numbers) -> int:
    """The place in a line before the next phase that would fit now; -1 if none does."""
    ints, need, free = tables.ints, tables.need, tables.free
    none = len(ints)
    for _ in range(BACKFILLED + TRIES // none):
        p = after[place]
        if p == none:
            return -1
        if ints[p, PENDING] == 0:
            remove_after(place, none, after)
        elif p != first and ints[p, HELD] < ints[p, ROOM] and fits(p, need, free):
            return place
        else:
            place = p
    return -1


def reserve(first: int, at: float, need: Numbers, spare: Numbers, ends: Numbers) -> float:
    """When the first one will fit; `spare`, what is free, becomes what is then free beside it.

    That includes what is expected to end at the same instant.
    """
    next_ends = [(expected, p) for _, p, expected in ends]
    heapify(next_ends)
    shadow = inf
    while len(next_ends) > 0 and next_ends[0][0] <= shadow:
        expected, p = heappop(next_ends)
        for r in range(len(spare)):
            spare[r] += need[p, r]
        if shadow == inf and fits(first, need, spare):
            shadow = max(expected, at)
    for r in range(len(spare)):
        spare[r] -= need[first, r]
    return shadow


PARTS = (
    end,
    next_due,
    hold,
    launch,
    fits,
    permitted,
    serve_due,
    has_free,
    entry_of,
    enter_queues,
    read_next,
    best_pool,
    serve,
    insert_all,
    enter_lines,
    remove_after,
    next_fit,
    reserve,
    backfill,
)
"""The functions that `simulate` calls, each after those that it calls itself."""
