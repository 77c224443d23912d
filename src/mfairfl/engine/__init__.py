"""Who carries messages: the round loop, the embedded engine, checkpoints, output rules."""
