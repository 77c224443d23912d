"""Figures of a study."""
