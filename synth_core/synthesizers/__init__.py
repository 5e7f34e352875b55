"""The methods: conversations with a curator that end in a model."""
