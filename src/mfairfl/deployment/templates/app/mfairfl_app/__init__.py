"""The Flower app of a federation: it only imports what is installed on every machine."""
