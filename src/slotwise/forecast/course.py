"""One simulated future: when jobs start and end, in machine code where numba is installed.

It simulates the scheduler in use in aggregate. Resources are those of all hosts together, the
tasks of a phase are alike within one course, and several tasks of a phase may be simulated as
one that runs longer. The order of jobs follows the scheduler: a fixed order, shares of pools
and jobs, the service that jobs had, or backfilling. What this leaves out is corrected by the
errors of earlier forecasts (`calibration.py`).

It is one long function, since its parts would pass thirty arrays to each other.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from slotwise.policy.compiled import Numbers

ORDER, SHARES, SERVED, EASY, EASY_SHORTEST = range(5)
"""How phases are served: in a fixed order; by the shares of pools and phases; those first that
had least service; in a fixed order with backfilling, by that order or the shortest first."""

TRIED = 16
"""How many phases that do not fit are passed over in a pool at one instant."""

STARVING = -1e12
"""The rank of a pool below its min share, to which its part of that share is added."""

FITS = 1e-9
"""Tolerance for sums of resources."""


def simulate(
    mode: int,
    now: float,
    until: float,
    free: Numbers,
    kinds: int,
    job: Numbers,
    arrival: Numbers,
    later: Numbers,
    waits: Numbers,
    successors_from: Numbers,
    successors: Numbers,
    need: Numbers,
    width: Numbers,
    pending: Numbers,
    batch: Numbers,
    room: Numbers,
    work: Numbers,
    expected: Numbers,
    key: Numbers,
    weight: Numbers,
    pool: Numbers,
    pool_weight: Numbers,
    pool_min: Numbers,
    pool_max: Numbers,
    running: Numbers,
    running_ends: Numbers,
    running_expected: Numbers,
    phases_left: Numbers,
    start: Numbers,
    end: Numbers,
) -> int:
    """Simulate from `now` until all jobs are over, or `until`. The number of events.

    It writes instants into `start` and `end`, by job; a start that is set stays. It changes
    `free`, `waits`, `pending` and `phases_left`. Arrays are by phase, except:

    free          what is free of each resource; the first `kinds` are kinds of slots
    later         the phases that are ready after `now`, in order of `arrival`
    waits         how many phases each phase waits for. The successors of phase p are those from
                  `successors_from[p]` to `successors_from[p + 1]` in `successors`
    need          what a task takes: a row for each phase, a column for each resource
    width         the slots among these
    pending       tasks that have not begun; `batch` of them run one after another as one
    room          the most that may run at once
    work          seconds of a task in this course; `expected` is what the scheduler assumes
    key           the fixed order, lower ones first
    pool_weight   by pool, as are the next two, which are in slots
    running       by running task: its phase, when it ends, and is expected to end
    phases_left   by job: the phases that are not done

    O(log n) for each task that it simulates; O(n) with n waiting phases under backfilling.
    """
    resources, pools = len(free), len(pool_weight)
    is_easy = mode in (EASY, EASY_SHORTEST)
    # By attempt: its phase, its tasks, and when the scheduler expects its end.
    of = [0 for _ in range(len(running))]
    tasks = [1 for _ in range(len(running))]
    assumed = [0.0 for _ in range(len(running))]
    ends = [(inf, 0) for _ in range(len(running))]
    held = [0 for _ in range(len(job))]
    served = [0.0 for _ in range(len(job))]
    pool_held = [0.0 for _ in range(pools)]
    for a in range(len(running)):
        p = running[a]
        of[a], assumed[a], ends[a] = p, running_expected[a], (running_ends[a], a)
        held[p] += 1
        served[p] += work[p] * width[p]
        pool_held[pool[p]] += width[p]
    heapify(ends)
    # Where phases wait to launch: a heap for each pool, or one list in order for backfilling.
    queues = [[(0.0, 0.0, 0) for _ in range(0)] for _ in range(pools)]
    queue = [(0.0, 0) for _ in range(0)]
    aside = [(0.0, 0.0, 0) for _ in range(0)]
    launched = [(0, 0) for _ in range(0)]  # Phases, and how many tasks.
    unused = [0 for _ in range(0)]
    rank = [0.0 for _ in range(len(job))]
    is_queued = [False for _ in range(len(job))]
    ready = [p for p in range(len(job)) if waits[p] == 0 and arrival[p] <= now]
    jobs_left, next_later, events, at = 0, 0, 0, now
    for j in range(len(phases_left)):
        jobs_left += phases_left[j] > 0
    while jobs_left > 0 and at <= until:
        events += 1
        for p in ready:
            if is_easy:
                is_closed = pool_max[pool[p]] < width[p]
                if not is_queued[p] and pending[p] > 0 and not is_closed:
                    queue.append((key[p], p))
                    i = len(queue) - 1
                    while i > 0 and queue[i] < queue[i - 1]:
                        queue[i], queue[i - 1] = queue[i - 1], queue[i]
                        i -= 1
                    is_queued[p] = True
            elif pending[p] > 0:
                new = key[p]
                if mode == SHARES:
                    new = held[p] * width[p] / weight[p]
                elif mode == SERVED:
                    new = served[p] / weight[p]
                if new != rank[p] or not is_queued[p]:
                    rank[p] = new
                    second = served[p] / weight[p] if mode == SHARES else key[p]
                    heappush(queues[pool[p]], (new, second, p))
                is_queued[p] = True
        ready.clear()
        launched.clear()
        if is_easy:
            i = 0
            while i < len(queue):  # Those that come first, while they fit.
                p = queue[i][1]
                fits = held[p] < room[p]
                for r in range(resources):
                    fits = fits and need[p, r] <= free[r] + FITS
                if not fits:
                    break
                count = min(batch[p], pending[p])
                launched.append((p, count))
                held[p] += 1
                pending[p] -= count
                for r in range(resources):
                    free[r] -= need[p, r]
                if pending[p] == 0:
                    is_queued[p] = False
                    i += 1
            if i > 0:
                queue = queue[i:]
            has_free = False
            for r in range(kinds):
                has_free = has_free or free[r] > FITS
            if len(queue) > 1 and has_free:
                # When the first one will fit, and what is then free beside it.
                first, shadow = queue[0][1], inf
                next_ends = [(assumed[a], of[a]) for _, a in ends]
                for p, count in launched:
                    next_ends.append((at + expected[p] * count, p))
                next_ends.sort()
                then = [free[r] for r in range(resources)]
                for t, p in next_ends:
                    if t > shadow:
                        break
                    for r in range(resources):
                        then[r] += need[p, r]
                    if shadow == inf:
                        fits = True
                        for r in range(resources):
                            fits = fits and need[first, r] <= then[r] + FITS
                        if fits:
                            shadow = max(t, at)
                for r in range(resources):
                    then[r] -= need[first, r]
                others = list(range(1, len(queue)))
                if mode == EASY_SHORTEST:
                    by_length = [(expected[queue[i][1]], i) for i in others]
                    by_length.sort()
                    others = [i for _, i in by_length]
                for i in others:
                    p = queue[i][1]
                    while pending[p] > 0:
                        count = min(batch[p], pending[p])
                        is_short = at + expected[p] * count <= shadow
                        fits = held[p] < room[p]
                        for r in range(resources):
                            fits = fits and need[p, r] <= free[r] + FITS
                            fits = fits and (is_short or need[p, r] <= then[r] + FITS)
                        if not fits:
                            break
                        launched.append((p, count))
                        held[p] += 1
                        pending[p] -= count
                        for r in range(resources):
                            free[r] -= need[p, r]
                            if not is_short:
                                then[r] -= need[p, r]
                    is_queued[p] = pending[p] > 0
                queue = [one for one in queue if is_queued[one[1]]]
        else:
            blocked = [False for _ in range(pools)]
            passed = [0 for _ in range(pools)]
            while True:
                has_free = False
                for r in range(kinds):
                    has_free = has_free or free[r] > FITS
                if not has_free:
                    break
                best, best_rank, best_key = -1, inf, inf
                for q in range(pools):
                    if blocked[q]:
                        continue
                    while len(queues[q]) > 0:
                        entry = queues[q][0]
                        p = entry[2]
                        is_current = is_queued[p] and entry[0] == rank[p]
                        if is_current and pending[p] > 0 and held[p] < room[p]:
                            break
                        heappop(queues[q])
                        if is_current:
                            is_queued[p] = False
                    if len(queues[q]) == 0 or pool_held[q] >= pool_max[q] - FITS:
                        blocked[q] = True
                        continue
                    entry = queues[q][0]
                    of_pool = entry[0]
                    if pool_held[q] < pool_min[q] - FITS:
                        of_pool = STARVING + pool_held[q] / pool_min[q]
                    elif mode == SHARES:
                        of_pool = pool_held[q] / pool_weight[q]
                    if of_pool < best_rank or (of_pool == best_rank and entry[1] < best_key):
                        best, best_rank, best_key = q, of_pool, entry[1]
                if best < 0:
                    break
                p = queues[best][0][2]
                fits = True
                for r in range(resources):
                    fits = fits and need[p, r] <= free[r] + FITS
                if not fits:
                    aside.append(heappop(queues[best]))
                    passed[best] += 1
                    blocked[best] = passed[best] >= TRIED
                    continue
                count = min(batch[p], pending[p])
                launched.append((p, count))
                held[p] += 1
                pending[p] -= count
                pool_held[best] += width[p]
                for r in range(resources):
                    free[r] -= need[p, r]
                if mode != ORDER:
                    served[p] += work[p] * count * width[p]
                    used = served[p] if mode == SERVED else held[p] * width[p]
                    heappop(queues[best])
                    rank[p] = used / weight[p]
                    second = served[p] / weight[p] if mode == SHARES else key[p]
                    heappush(queues[best], (rank[p], second, p))
            for entry in aside:
                heappush(queues[pool[entry[2]]], entry)
            aside.clear()
        for p, count in launched:
            if len(unused) > 0:
                a = unused.pop()
            else:
                a = len(of)
                of.append(0)
                tasks.append(0)
                assumed.append(0.0)
            of[a], tasks[a], assumed[a] = p, count, at + expected[p] * count
            heappush(ends, (at + work[p] * count, a))
            start[job[p]] = min(start[job[p]], at)
        at = ends[0][0] if len(ends) > 0 else inf
        if next_later < len(later):
            at = min(at, arrival[later[next_later]])
        if at == inf:
            break
        while next_later < len(later) and arrival[later[next_later]] <= at:
            if waits[later[next_later]] == 0:
                ready.append(later[next_later])
            next_later += 1
        while len(ends) > 0 and ends[0][0] <= at:
            _, a = heappop(ends)
            p = of[a]
            unused.append(a)
            held[p] -= 1
            pool_held[pool[p]] -= width[p]
            for r in range(resources):
                free[r] += need[p, r]
            if pending[p] > 0:
                ready.append(p)
            elif held[p] == 0:
                j = job[p]
                phases_left[j] -= 1
                if phases_left[j] == 0:
                    end[j] = at
                    jobs_left -= 1
                for i in range(successors_from[p], successors_from[p + 1]):
                    q = successors[i]
                    waits[q] -= 1
                    if waits[q] == 0 and arrival[q] <= at:
                        ready.append(q)
    return events
