"""Apache Kafka beside us: a peer process, its command-line tools, its own tier."""
