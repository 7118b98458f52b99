"""One connection to another node of a Kafka cluster, asynchronous or blocking."""
