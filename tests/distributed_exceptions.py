"""The tests of distributed that cannot pass behind the gate, and why."""

from __future__ import annotations

PRIORITIES = (
    "test_submit",
    "test_map",
    "test_compute",
    "test_persist",
    "test_annotate_compute",
    "test_annotate_persist",
    "test_repeated_persists_same_priority",
    "test_last_in_first_out",
)
QUEUED = (
    "test_TaskState__to_dict",
    "test_alias_resolving_break_queuing",
    "test_deadlock_dependency_of_queued_released_when_worker_removed",
    "test_deadlock_dependency_of_queued_released_when_worker_replaced",
    "test_deadlock_resubmit_queued_tasks_fast[True]",
    "test_no_workers[True]",
    "test_no_workers_timeout_queued",
    "test_queued_release_multiple_workers",
    "test_queued_remove_add_worker",
    "test_ready_remove_worker",
    "test_remove_worker_from_scheduler",
    "test_saturation_factor",
    "test_task_group_not_done_queued",
)
PLACED = (
    "test_decide_worker_coschedule_order_neighbors",
    "test_decide_worker_with_many_independent_leaves",
    "test_graph_execution_width",
    "test_override_is_rootish",
    "test_quiet_cluster_round_robin",
)
STEALING = (
    "test_balance",
    "test_balance_even_with_replica",
    "test_balance_eventually_steals_large_dependency_without_replica",
    "test_balance_expensive_tasks",
    "test_balance_multiple_to_replica",
    "test_balance_prefers_busier_with_dependency",
    "test_balance_to_larger_dependency",
    "test_balance_to_replica",
    "test_balance_uneven_without_replica",
    "test_do_not_ping_pong",
    "test_get_story",
    "test_reschedule_concurrent_requests_deadlock",
    "test_steal_concurrent_simple",
    "test_steal_host_restrictions",
    "test_steal_large_dependency",
    "test_steal_more_attractive_tasks",
    "test_steal_resource_restrictions",
    "test_steal_resource_restrictions_asym_diff",
    "test_steal_stimulus_id_unique",
    "test_steal_worker_dies_same_ip",
    "test_stealing_objective_accounts_for_in_flight",
    "test_stop_in_flight",
)

REASONS: dict[str, tuple[str, ...]] = {
    "expect tasks in Dask's own queue, or that nothing is held": (
        *(f"tests/test_scheduler.py::{name}" for name in QUEUED),
        "shuffle/tests/test_rechunk.py::test_homogeneously_schedule_unpack",
    ),
    "expect tasks that wait at a worker; they wait in the scheduler": (
        *(f"tests/test_steal.py::{name}" for name in STEALING),
        "tests/test_active_memory_manager.py::test_ReduceReplicas_with_waiters[2-0-0-1]",
        "tests/test_active_memory_manager.py::test_ReduceReplicas_with_waiters[2-1-1-3]",
        "tests/test_active_memory_manager.py::test_ReduceReplicas_with_waiters[17-1-1-3]",
        "tests/test_active_memory_manager.py::test_ReduceReplicas_with_waiters[18-1-1-4]",
        "tests/test_cancelled_state.py::test_cancelled_error_with_resources",
        "tests/test_cancelled_state.py::test_executing_cancelled_error",
        "tests/test_scheduler.py::test_unknown_task_duration_config",
        "tests/test_worker_memory.py::test_pause_executor_manual",
        "tests/test_worker_memory.py::test_pause_executor_with_memory_monitor",
        "tests/test_worker_memory.py::test_pause_while_saturated",
        "shuffle/tests/test_shuffle.py::test_restarting_during_transfer_raises_killed_worker",
    ),
    "expect the worker that Dask chooses when none is excluded for lack of room": (
        *(f"tests/test_scheduler.py::{name}" for name in PLACED),
        "tests/test_client_executor.py::test_retries",
        "tests/test_steal.py::test_dont_steal_fast_tasks_compute_time",
        "shuffle/tests/test_shuffle.py::test_barrier_handles_stale_resumed_transfer",
        "shuffle/tests/test_shuffle.py::test_flaky_connect_fails_without_retry",
    ),
    "expect a strict order of graphs by `priority`, which is a weight here": tuple(
        f"tests/test_priorities.py::{name}" for name in PRIORITIES
    ),
    "damage Dask's state on purpose, which the gate's check of all tables finds": (
        "tests/test_scheduler.py::test_transition_failure_triggers_log_event",
    ),
}
"""Tests by reason. A test without parameters stands for all of its parameters."""

EXCEPTIONS = frozenset(test for tests in REASONS.values() for test in tests)
