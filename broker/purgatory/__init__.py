"""Parked requests.

Kafka's purgatory has produce requests, too: here their handlers await the commit.
"""
