"""Many runs: studies and comparisons, statistics, tables, figures, hyper-parameter search."""
