"""What a coordinator can read out of a silo, measured on rows that ship with mfairfl."""
