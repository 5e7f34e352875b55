"""What the people who run releases look at: events, notifications, metrics, and the pages of the privacy budget."""
