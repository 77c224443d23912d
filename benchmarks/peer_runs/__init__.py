"""One module a library, each run in that library's own environment by `benchmarks/peers.py`.

Every module has `run(work, pace)`: it trains on the clients of `work` with federated averaging
and calls `pace` before the first round and after every one. Nobody but us measures anything.
"""
