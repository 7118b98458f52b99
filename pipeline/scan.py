"""The reader for whoever has no Spark."""
