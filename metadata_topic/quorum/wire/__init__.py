"""Requests of the quorum over TCP."""
