"""What each instruction does: the coroutines of the queues of `sim.functional`, one file for each."""
