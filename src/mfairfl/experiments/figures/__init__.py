"""Figures of many runs."""
