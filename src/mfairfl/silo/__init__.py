"""What runs at a silo: it answers requests about its own file, within its own rules."""
