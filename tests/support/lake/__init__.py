"""Tiered logs to read without their broker: generated buckets, filled clusters, expected rows."""
