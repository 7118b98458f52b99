"""Carries out what the Raft core decides."""
