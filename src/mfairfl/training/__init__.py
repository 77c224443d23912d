"""The client half of every method: plans, the one trainer, measurements."""
