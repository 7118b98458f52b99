"""Promises of `fetch_index`: every kind is complete, and a missing one is "not found"."""

import io
import random
from dataclasses import replace
from functools import partial

from rsm_plugins.api import RemoteResourceNotFoundError, RemoteStorageManager
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import INDEX_BYTES, segment_data
from rsm_plugins.segment import IndexType

_LARGE_INDEX_BYTES = 3 << 20


class IndexPromises(Promises):
    """Promises about indexes."""

    def test_every_index_reads_back(self, manager: RemoteStorageManager) -> None:
        """Every kind of index reads back byte for byte."""
        copied = self.copied(manager)
        for kind, body in INDEX_BYTES.items():
            expect.reads(partial(manager.fetch_index, copied, kind), body, f"index {kind.value}")

    def test_empty_indexes_are_indexes(self, manager: RemoteStorageManager) -> None:
        """An index that is empty is there, and empty."""
        data = replace(
            segment_data(),
            offset_index=io.BytesIO(),
            time_index=io.BytesIO(),
            transaction_index=io.BytesIO(),
        )
        copied = self.copied(manager, data=data)
        for kind in (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION):
            expect.reads(partial(manager.fetch_index, copied, kind), b"", f"empty {kind.value}")

    def test_large_indexes_read_back(self, manager: RemoteStorageManager) -> None:
        """Indexes of several MiB read back byte for byte."""
        bodies = {
            IndexType.OFFSET: random.Random(1).randbytes(_LARGE_INDEX_BYTES),
            IndexType.TIMESTAMP: random.Random(2).randbytes(_LARGE_INDEX_BYTES),
        }
        data = replace(
            segment_data(),
            offset_index=io.BytesIO(bodies[IndexType.OFFSET]),
            time_index=io.BytesIO(bodies[IndexType.TIMESTAMP]),
        )
        copied = self.copied(manager, data=data)
        for kind, body in {**INDEX_BYTES, **bodies}.items():
            expect.reads(partial(manager.fetch_index, copied, kind), body, f"index {kind.value}")

    def test_a_missing_transaction_index_is_not_found(self, manager: RemoteStorageManager) -> None:
        """A segment without a transaction index has none, and its other indexes are there."""
        copied = self.copied(manager, data=segment_data(transactions=False))
        expect.fails(
            RemoteResourceNotFoundError,
            lambda: manager.fetch_index(copied, IndexType.TRANSACTION),
            "the transaction index that was not copied",
        )
        kind = IndexType.OFFSET
        expect.reads(lambda: manager.fetch_index(copied, kind), INDEX_BYTES[kind], "offset index")
