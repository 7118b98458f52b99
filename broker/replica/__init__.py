"""Partitions hosted here and what clients do to them: append, read, list offsets."""
