"""A tier takes faults of its store from the broker, and reports what they hit."""

from pathlib import Path

import pytest

from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.messages import Ack, SetStoreFaults, StoreFaultHit
from rlm.plugins import Plugins
from rlm.tier_process import configure_plugins
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.contract.samples import copy, segment
from rsm_plugins.store_faults import StoreCall, StoreFault, StoreFaultKind, StoreFaults, with_faults
from tests.support.tier.pair import Pair

REFUSE = StoreFault(id=3, kind=StoreFaultKind.REFUSE, count=1)


class Faulty(Pair):
    def _plugins(self, config: TierConfig, calls: object) -> Plugins:
        faults = StoreFaults()
        storage = with_faults(self.storage, faults)
        deletions = Deletions(storage, self.clock, 600_000, 3_600_000)
        return Plugins(storage, self.metadata, deletions, store_faults=faults)


def test_a_fault_hits_a_call_and_is_reported_before(tmp_path: Path) -> None:
    pair = Faulty(tmp_path)
    assert pair.ask(SetStoreFaults([REFUSE])).message == Ack()
    storage = pair.tier._plugins.storage
    with pytest.raises(RetriableRemoteStorageError):
        copy(storage, segment(1))
    assert pair.told == [StoreFaultHit(3, StoreCall.COPY, "orders")]
    copy(storage, segment(1))
    assert len(pair.told) == 1


def test_a_tier_without_faults_says_so(tmp_path: Path) -> None:
    assert Pair(tmp_path).ask(SetStoreFaults([REFUSE])).message == Ack(taken=False)


@pytest.mark.parametrize("wanted", [False, True])
def test_the_wrapper_is_in_the_path_only_where_faults_are_wanted(
    tmp_path: Path, wanted: bool
) -> None:
    config = TierConfig(
        node_id=1,
        cluster_id="c",
        state_dir=str(tmp_path),
        cache_dir=str(tmp_path),
        storage_class="rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        storage_settings={"dir": str(tmp_path)},
        metadata_class="rlmm.memory:InMemoryRemoteLogMetadataManager",
        faults_on_demand=wanted,
    )
    plugins = configure_plugins(config, None, None, None)  # type: ignore[arg-type]
    assert (plugins.store_faults is not None) is wanted
    assert (type(plugins.storage).__name__ != "LocalFsRemoteStorageManager") is wanted
