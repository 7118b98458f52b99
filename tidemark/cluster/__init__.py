"""What `topics`, `brokers` and `features` ask of a running cluster, over Kafka's APIs."""
