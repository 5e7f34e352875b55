"""Reports people read: the internal one with true errors, the public one without; both made of the same parts."""
