"""Reads one split: bytes of the store and of brokers, to record batches of Arrow."""
