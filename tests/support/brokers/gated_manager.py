"""The usual metadata manager, for which the topic is away while its broker's gate is shut."""

from rlmm.topic_based.confluent_port import ConfluentPort
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.settings import ManagerSettings
from rlmm.topic_based.topic_port import TopicUnavailableError

SHUT = "gate-is-shut"
"""A file beside the log directory: while it exists the gate is shut."""


class GatedPort(ConfluentPort):
    def __init__(self, settings: ManagerSettings) -> None:
        super().__init__(settings)
        self._shut = settings.directory.parent.parent / SHUT

    def connect(self) -> int:
        if self._shut.exists():
            raise TopicUnavailableError("the gate is shut")
        return super().connect()


class GatedManager(TopicBasedRemoteLogMetadataManager):
    def __init__(self) -> None:
        super().__init__(port_factory=GatedPort)
