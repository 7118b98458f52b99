"""Bytes to values and back: Kafka's wire messages, record batches and files. Floor 0: no sockets, files or clock."""
