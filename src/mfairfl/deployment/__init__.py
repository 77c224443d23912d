"""Processes on real machines: coordinator, silos, keys and certificates, on Flower."""
