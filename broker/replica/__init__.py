"""Partitions hosted here and the clients' operations on them: append, read, list offsets."""
