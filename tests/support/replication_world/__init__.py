"""Replicated partitions as nodes of one simulated cluster; see `world`."""
