"""Hyper-parameter search: `tune` with Optuna for one method, successive halving for a study."""
