"""The wall: everything that sees exact counts, and the books of what it answered."""
