"""Questions of `topics`, `brokers` and `features` to a running cluster, over Kafka's APIs."""
