"""The work of one Spark task, as it travels from the driver to an executor.

Spark pickles each task alone, with cloudpickle. A plan may have 100,000 of them, so what is the
same for all is pickled once, and a split by plain pickle, which is the quicker one.
"""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyspark.sql.datasource import InputPartition

from pipeline.values import Source, Split
from runtime.override import override

_SOURCES_MAX = 8
"""So many are kept unpacked: a process works for few queries at a time."""


@dataclass(frozen=True, repr=False)
class SplitPartition(InputPartition):
    """One split, and where its bytes are.

    The source travels with each split: a reader is pickled before the log is opened.

    Attributes:
        packed_source: pickled. May hold secrets: never shown.
    """

    split: Split
    packed_source: bytes = field(repr=False)

    @property
    def source(self) -> Source:
        """Where the bytes are."""
        return _unpacked(self.packed_source)

    @override
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, bytes]]:
        return _restored, (pickle.dumps(self.split, pickle.HIGHEST_PROTOCOL), self.packed_source)

    def __repr__(self) -> str:
        """No settings: Spark may show it."""
        return f"SplitPartition({self.split.partition}, about {self.split.bytes_estimate} bytes)"


def tasks_of(splits: Iterable[Split], source: Source) -> list[InputPartition]:
    """One task a split."""
    packed = pickle.dumps(source, pickle.HIGHEST_PROTOCOL)
    return [SplitPartition(split, packed) for split in splits]


def _restored(packed_split: bytes, packed_source: bytes) -> SplitPartition:
    return SplitPartition(pickle.loads(packed_split), packed_source)


@lru_cache(_SOURCES_MAX)
def _unpacked(packed: bytes) -> Source:
    source: Source = pickle.loads(packed)
    return source
