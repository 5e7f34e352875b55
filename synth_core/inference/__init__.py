"""What a release's model says of any table, and how far that may be from the truth."""
