"""What Apache Kafka's controllers answer to raw requests of the quorum, recorded."""
