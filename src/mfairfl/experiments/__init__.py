"""Configurations, runs and their records."""
