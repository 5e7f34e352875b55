"""What people who run releases look at: the pages of the privacy budget, REST and metrics."""
