"""Confidential rows: where they are, how they are read, encoded, written and counted."""
