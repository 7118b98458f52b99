from abc import abstractmethod
from typing import Any

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.api import PartitionDeletion
from rlmm.loader import load_metadata_manager
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from tests.support.tier.least_manager import LeastManager

KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def test_kafkas_name_means_ours() -> None:
    assert isinstance(load_metadata_manager(KAFKAS), TopicBasedRemoteLogMetadataManager)


def test_another_manager_can_be_plugged_in_by_class_name() -> None:
    manager = load_metadata_manager("rlmm.memory:InMemoryRemoteLogMetadataManager")
    assert isinstance(manager, InMemoryRemoteLogMetadataManager)


def test_a_manager_with_the_abstract_methods_alone_is_enough() -> None:
    name = f"{LeastManager.__module__}:LeastManager"
    assert isinstance(load_metadata_manager(name), LeastManager)


class Lacking(InMemoryRemoteLogMetadataManager):
    @abstractmethod
    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None: ...


def test_a_manager_that_lacks_a_method_that_is_due_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=f"class.name={__name__}:Lacking: has no deletion$"):
        load_metadata_manager(f"{__name__}:Lacking")


class OldOwn(InMemoryRemoteLogMetadataManager):
    def own(self, partition: Any, fence: Any, metadata_offset: int = -1) -> Any: ...  # type: ignore[override]


class Renamed(InMemoryRemoteLogMetadataManager):
    def follow(self, of: Any) -> Any: ...  # type: ignore[override]


class Turned(InMemoryRemoteLogMetadataManager):
    def carry(self, fence: Any, partition: Any, log_start: Any) -> None: ...


class Wants(InMemoryRemoteLogMetadataManager):
    def deletion(self, partition: Any, also: Any) -> Any: ...  # type: ignore[override]


class Value(InMemoryRemoteLogMetadataManager):
    counts = 5  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        (OldOwn, r"own: .*'unclean_epoch'; due are \(partition, fence, metadata_offset, unclean_"),
        (Renamed, r"follow: .*'of'; due are \(partition\)"),
        (Turned, r"carry: partition, fence at another place"),
        (Wants, r"deletion: .*'also'"),
        (Value, r"counts: 5 is not a callable"),
    ],
)
def test_a_method_that_does_not_take_what_is_due_is_refused_by_name(
    manager: type, said: str
) -> None:
    with pytest.raises(ValueError, match=f"class.name={__name__}:{manager.__name__}: {said}"):
        load_metadata_manager(f"{__name__}:{manager.__name__}")


class TakesMore(InMemoryRemoteLogMetadataManager):
    def own(self, *args: Any, **named: Any) -> Any: ...

    @staticmethod
    def release(partition: Any, more: int = 1) -> None: ...  # type: ignore[override]


def test_a_method_may_take_more_than_is_due() -> None:
    assert isinstance(load_metadata_manager(f"{__name__}:TakesMore"), TakesMore)


def test_a_manager_that_is_no_subclass_is_refused_with_what_is_due() -> None:
    with pytest.raises(ValueError, match=r"not a subclass of rlmm\.api\.RemoteLogMetadataManager$"):
        load_metadata_manager("rlmm.store:MemoryStore")


@pytest.mark.parametrize(
    "name", ["com.example.Manager", "rlmm.store:MemoryStore", "rlmm.nothing:X"]
)
def test_anything_else_is_an_error_that_names_key_and_value(name: str) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.metadata\.manager\.class\.name") as error:
        load_metadata_manager(name)
    assert name in str(error.value)
