"""Scripts, one for each library: read an order (rows, sizes, epsilon, delta), make a table, write its codes."""
