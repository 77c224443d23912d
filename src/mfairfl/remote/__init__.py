"""Messages between a loop and clients elsewhere, whoever carries them."""
