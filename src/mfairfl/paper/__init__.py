"""The mFairFL paper: its published numbers, its experiments, and what held of its claims."""
