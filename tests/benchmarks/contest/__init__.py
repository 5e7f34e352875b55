"""The utility contest: our methods and other libraries', each in a process of its own, on the same data and budget.

Each `with_*.py` is a script: it reads an order (rows, sizes, epsilon, delta), makes a table and writes its codes.
"""
