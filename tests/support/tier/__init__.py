"""A tier in this process: its broker, its facts, its metadata topic, its deaths."""
