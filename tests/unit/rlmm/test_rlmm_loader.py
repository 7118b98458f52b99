from concurrent.futures import Future

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence, MetadataNotReadyError
from rlmm.foreign import ADDITIONS, completed
from rlmm.loader import load_metadata_manager
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.testing import FENCE, PARTITION, segment
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager

KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def test_kafkas_name_means_ours() -> None:
    assert isinstance(load_metadata_manager(KAFKAS), TopicBasedRemoteLogMetadataManager)


def test_another_manager_can_be_plugged_in_by_class_name() -> None:
    manager = load_metadata_manager("rlmm.memory:InMemoryRemoteLogMetadataManager")
    assert isinstance(manager, InMemoryRemoteLogMetadataManager)


class KafkasInterface(InMemoryRemoteLogMetadataManager):
    """Has what KIP-405 and the fence ask for, and no more."""

    carry = history = catch_up = on_lost_records = None  # type: ignore[assignment]

    def own(  # type: ignore[override]
        self, partition: TopicIdPartition, fence: Fence, metadata_offset: int = -1
    ) -> "Future[None]":
        return super().own(partition, fence, metadata_offset)


def test_a_manager_without_our_additions_works_and_proves_nothing() -> None:
    manager = load_metadata_manager(f"{__name__}:KafkasInterface")
    assert manager.own(PARTITION, FENCE, 5, unclean_epoch=3).exception(0) is None
    assert manager.add(segment(1, 0, 9), FENCE, 5).exception(0) is None
    manager.carry(PARTITION, FENCE, 4)
    manager.on_lost_records(lambda partition: None)
    assert manager.history(PARTITION) is None
    assert manager.catch_up(PARTITION).exception(0) is None
    manager.release(PARTITION)
    assert isinstance(manager.catch_up(PARTITION).exception(0), MetadataNotReadyError)


def test_a_manager_without_our_additions_learns_the_offset_at_which_its_owner_saw_the_topic() -> (
    None
):
    inner = KafkasInterface()
    assert completed(inner).own(PARTITION, FENCE, 5, unclean_epoch=3).exception(0) is None
    assert {event.stamp.metadata_offset for event, _ in inner.log} == {5}


@pytest.mark.parametrize("missing", ADDITIONS)
def test_a_manager_that_lacks_one_of_our_additions_has_none(missing: str) -> None:
    lacking = type("Lacking", (InMemoryRemoteLogMetadataManager,), {missing: None})
    manager = completed(lacking())
    assert manager.own(PARTITION, FENCE, 5).exception(0) is None
    assert manager.history(PARTITION) is None


def test_our_own_managers_have_all_additions() -> None:
    for made in (InMemoryRemoteLogMetadataManager, TopicBasedRemoteLogMetadataManager):
        assert all(callable(getattr(made, name)) for name in ADDITIONS)


@pytest.mark.parametrize(
    "name", ["com.example.Manager", "rlmm.store:MemoryStore", "rlmm.nothing:X"]
)
def test_anything_else_is_an_error_that_names_key_and_value(name: str) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.metadata\.manager\.class\.name") as error:
        load_metadata_manager(name)
    assert name in str(error.value)
