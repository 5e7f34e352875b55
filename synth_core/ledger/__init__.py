"""Durable accounts: budget reserved before data is read, one stored answer for a key, all in a hash chain."""
