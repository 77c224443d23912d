"""The audit of any model's decisions: from counts to tables, bounds, drift and files."""
