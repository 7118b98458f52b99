"""What is here of the remote store, as one value."""

from dataclasses import dataclass

from rlm.read.chunk_cache import ChunkCache
from rlm.read.index_cache import IndexCache
from rlm.read.lending import Lending
from rlm.read.loads import Loads


@dataclass(frozen=True, slots=True)
class Caches:
    """Indexes and chunks that are here, the loads that bring further ones, and what is lent."""

    indexes: IndexCache
    chunks: ChunkCache
    loads: Loads
    lending: Lending
