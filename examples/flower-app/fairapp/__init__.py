"""A Flower app whose strategy comes from mfairfl."""
