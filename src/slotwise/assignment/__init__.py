"""Assignment of tasks to free slots, delay scheduling and preemption."""
