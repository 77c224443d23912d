"""Attacks on a federation by clients that lie, and what they achieve."""
