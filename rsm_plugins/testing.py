"""For test suites: every promise of `RemoteStorageManager` as a test to inherit.

A plugin author writes a class with one fixture and inherits the rest::

    class TestMine(RemoteStorageManagerContract):
        @pytest.fixture
        def manager(self, tmp_path):
            manager = MyRemoteStorageManager()
            manager.configure({"node.id": "1", "cluster.id": "c", ...})
            yield manager
            manager.close()

The promises are in `rsm_plugins.contract`, which does not import pytest. `FaultyStorage` (module
`rsm_plugins.contract.faulty_storage`) is for tests of code that uses a plugin.
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
    """The promises of every storage plugin as tests: inherit, and define the fixture `manager`.

    `manager` is a configured plugin. The fixtures `unreachable_manager`, `refusing_manager` and
    `flaky_store` are optional: without them the tests that need them are skipped. A class may also
    set the attributes of `rsm_plugins.contract.base.Promises`: `large_segment_bytes` for a plugin
    whose parts are larger, `wrong_settings` for a plugin without `SETTINGS`. Each test needs a
    plugin object of its own, since one of them closes it.
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
        pytest.skip("no fixture `flaky_store`: a plugin whose requests fail on demand")
