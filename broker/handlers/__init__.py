"""One file an API key: what the broker answers."""
