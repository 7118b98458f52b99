"""Reads the tiered log without the broker: one Arrow reader, and Spark's source and jobs on it.

Importing this package imports neither pyarrow nor Spark: the modules that need them do.
"""
