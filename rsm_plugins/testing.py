"""For test suites: every promise of `RemoteStorageManager` as a test to inherit.

A plugin author writes a class with one fixture and inherits the rest::

    class TestMine(RemoteStorageManagerContract):
        @pytest.fixture
        def manager(self, tmp_path):
            manager = MyRemoteStorageManager()
            manager.configure({"node.id": "1", "cluster.id": "c", ...})
            yield manager
            manager.close()

The promises live in `rsm_plugins.contract`, without pytest; `FaultyStorage`, for tests of whoever
uses a plugin, in `rsm_plugins.contract.faulty_storage`.
"""

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract import AllPromises
from rsm_plugins.contract.faulty_storage import Body, Call, FaultyStorage, Operation
from rsm_plugins.contract.flaky import Failure, FlakyRequests, FlakyStore
from rsm_plugins.contract.samples import (
    INDEX_BYTES,
    LOG_BYTES,
    BreakingFile,
    copy,
    read,
    segment,
    segment_data,
)

__all__ = [
    "INDEX_BYTES",
    "LOG_BYTES",
    "Body",
    "BreakingFile",
    "Call",
    "Failure",
    "FaultyStorage",
    "FlakyRequests",
    "FlakyStore",
    "Operation",
    "RemoteStorageManagerContract",
    "copy",
    "read",
    "segment",
    "segment_data",
]


class RemoteStorageManagerContract(AllPromises):
    """What every storage plugin promises. Inherit, and give a fixture `manager`.

    What else an author may set is in `rsm_plugins.contract.base.Promises`: `large_segment_bytes`
    for a plugin whose parts are larger, `wrong_settings` for one without `SETTINGS`. Promises are
    kept by a plugin as a whole: each test gets a plugin of its own, and one closes it.
    """

    @pytest.fixture
    def manager(self) -> RemoteStorageManager:
        raise NotImplementedError("give a fixture `manager`: a configured plugin")

    @pytest.fixture
    def unreachable_manager(self) -> RemoteStorageManager:
        pytest.skip("no fixture `unreachable_manager`: a plugin whose store does not answer")

    @pytest.fixture
    def refusing_manager(self) -> RemoteStorageManager:
        pytest.skip("no fixture `refusing_manager`: a plugin whose store refuses to write")

    @pytest.fixture
    def flaky_store(self) -> FlakyStore:
        pytest.skip("no fixture `flaky_store`: a plugin whose requests fail when they are told to")
