import pytest

from rlmm.loader import load_metadata_manager
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager

KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def test_kafkas_name_means_ours() -> None:
    assert isinstance(load_metadata_manager(KAFKAS), TopicBasedRemoteLogMetadataManager)


def test_another_manager_can_be_plugged_in_by_class_name() -> None:
    manager = load_metadata_manager("rlmm.memory:InMemoryRemoteLogMetadataManager")
    assert isinstance(manager, InMemoryRemoteLogMetadataManager)


@pytest.mark.parametrize(
    "name", ["com.example.Manager", "rlmm.store:MemoryStore", "rlmm.nothing:X"]
)
def test_anything_else_is_an_error_that_names_key_and_value(name: str) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.metadata\.manager\.class\.name") as error:
        load_metadata_manager(name)
    assert name in str(error.value)
