"""Faults on demand: requests and calls of the store that fail, wait or get lost in tests."""
