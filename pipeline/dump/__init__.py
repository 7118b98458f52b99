"""Writes Arrow record batches as lines of JSON, as Parquet or as Arrow's own format."""
