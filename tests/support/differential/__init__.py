"""The same requests to Apache Kafka and to us, compared field by field."""
