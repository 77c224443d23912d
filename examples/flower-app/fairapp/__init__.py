"""A Flower app of its own; mfairfl gives the strategy."""
