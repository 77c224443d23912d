"""Flower carries the messages: the same loop, the same strategies, clients in other places."""
