"""Conversations about consumer groups, held with Apache Kafka and with us, answer for answer."""
