"""The work of one Spark task, as it travels from the driver to an executor."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pipeline.values import Source, Split


@dataclass(frozen=True, repr=False)
class SplitPartition(InputPartition):
    """One split, and where its bytes are.

    The source travels with each split: a reader is pickled before the log is opened.
    """

    split: Split
    source: Source

    def __repr__(self) -> str:
        """No settings: Spark may show it."""
        return f"SplitPartition({self.split.partition}, about {self.split.bytes_estimate} bytes)"
