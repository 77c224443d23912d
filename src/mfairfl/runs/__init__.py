"""One run: its configuration, its directory, its record, and the model it ends in."""
