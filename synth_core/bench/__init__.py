"""How the cost of a release grows with its size, and what a large census would cost."""
