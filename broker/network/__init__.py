"""Connections: frames in, answers out in order."""
