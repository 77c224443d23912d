"""The coordinator's only public port: it forwards what silos need, and nothing else.

Flower's SuperLink answers silos, operators and its own processes on one port. Operators need no
credentials there: anyone who reaches it can register keys and start code. So the SuperLink listens
on loopback only, and silos connect to this gate, which forwards the paths that they need, if a key
that is enrolled and not revoked signed the request. Flower checks the signature again behind it.
"""
