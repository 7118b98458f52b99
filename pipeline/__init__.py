"""Reads the tiered log without the broker: one Arrow reader, and Spark's source and jobs on it.

Importing this package imports neither pyarrow nor Spark: the modules that need them do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("tidemark")` known to a session that does not find `pyspark_tidemark`."""
    from pipeline.spark.source import register as register_source

    register_source(spark)
