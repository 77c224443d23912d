"""What the server accepts from clients."""
