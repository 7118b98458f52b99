"""The name by which Spark finds the source: `spark.read.format("tidemark")`, no registration."""

from pipeline.spark.source import TidemarkSource as DefaultSource

__all__ = ["DefaultSource"]
