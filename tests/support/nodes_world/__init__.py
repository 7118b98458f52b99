"""Brokers and controllers as nodes of one simulated cluster; see `world`."""
