from __future__ import annotations
__all__=["init"]
def init()->None:
    """TODO."""
