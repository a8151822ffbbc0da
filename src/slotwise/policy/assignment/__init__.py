"""Which task goes to which free slot: assigners, wide tasks and gangs, preemption."""
