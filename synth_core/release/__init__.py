"""What a release is: the spec a person writes, where files lie, the manifest."""
