"""Processes on real machines: coordinator, silos, keys and certificates, on Flower."""

from mfairfl.errors import require_extra

require_extra("flwr", "flower")
