"""Choosing hyper-parameters: by halving for comparisons, by Optuna for one's own."""
