"""Spark's Python data source on the reader: batch, stream, and sink."""
