"""Carries out the decisions of the Raft core."""
