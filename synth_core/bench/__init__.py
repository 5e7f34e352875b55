"""Utility benchmarks: our methods and other libraries', each in a process of its own, on the same data and budget."""
