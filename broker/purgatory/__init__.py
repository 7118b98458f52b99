"""Requests that wait: for bytes, for durability, for the remote tier."""
