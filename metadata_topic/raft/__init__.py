"""Raft as pure state machines: events in, effects out."""
