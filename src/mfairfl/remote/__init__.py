"""Messages between the round loop and clients on other machines, for any transport."""
