"""Two brokers with a remote tier each in one process, one store and one metadata topic for both."""
