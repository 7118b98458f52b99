"""Requests of the tier to its broker, as a port: over the link, or to a simulated broker."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from rlm.link.endpoint import Endpoint, Received
from rlm.link.messages import (
    Ack,
    AnyMessage,
    DescribeLog,
    Image,
    ImageAtLeast,
    LogDescription,
    OpenedSegment,
    OpenSegment,
    RaiseLeaderEpoch,
    RaiseLogStart,
    Report,
    RestoreChain,
    TopicsEmptied,
)
from runtime.disk import OpenFile

ANSWER_LIMIT_S = 60.0
EMPTIED_MAX = 1_000
"""Topic ids in one message: the broker and the active controller handle it on their event loops."""


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The answer about a local segment, with its descriptors in the order of `OpenedSegment`."""

    answer: OpenedSegment
    files: tuple[OpenFile, ...]


class BrokerPort(Protocol):
    """Blocking requests to the broker, from pool threads.

    All raise LinkFailureError where the broker refuses (it does not lead the partition under that
    epoch), and LinkEndedError when it is gone.
    """

    def describe(self, question: DescribeLog) -> LogDescription:
        """Describe the present local log."""
        ...

    def open_segment(self, question: OpenSegment) -> OpenedFiles:
        """Descriptors of a closed segment."""
        ...

    def report(self, report: Report) -> bool:
        """True if the broker took the report."""
        ...

    def raise_log_start(self, request: RaiseLogStart) -> bool:
        """True if the log start offset is moved, checkpointed and fsynced."""
        ...

    def restore_chain(self, request: RestoreChain) -> bool:
        """True if the broker uses the chain now, fsynced."""
        ...

    def raise_leader_epoch(self, request: RaiseLeaderEpoch) -> str:
        """Why the controller gives no higher leader epoch, "" while one may still come."""
        ...

    def image(self) -> Image:
        """The image at or past a high watermark confirmed after this call."""
        ...

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these removed topics; returns once the metadata log says so."""
        ...


class LinkBroker:
    """The broker at the other end of the link."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def _ask(self, message: AnyMessage) -> Received:
        return self._endpoint.ask(message).result(ANSWER_LIMIT_S)

    def describe(self, question: DescribeLog) -> LogDescription:
        """Describe the present local log."""
        answer = self._ask(question).message
        assert isinstance(answer, LogDescription), answer
        return answer

    def open_segment(self, question: OpenSegment) -> OpenedFiles:
        """Descriptors of a closed segment."""
        received = self._ask(question)
        assert isinstance(received.message, OpenedSegment), received.message
        return OpenedFiles(received.message, received.files)

    def report(self, report: Report) -> bool:
        """True if the broker took the report."""
        return self._taken(report)

    def raise_log_start(self, request: RaiseLogStart) -> bool:
        """True if the log start offset is moved, checkpointed and fsynced."""
        return self._taken(request)

    def restore_chain(self, request: RestoreChain) -> bool:
        """True if the broker uses the chain now, fsynced."""
        return self._taken(request)

    def raise_leader_epoch(self, request: RaiseLeaderEpoch) -> str:
        """Why the controller gives no higher leader epoch, "" while one may still come."""
        answer = self._acknowledged(request)
        return "" if answer.taken else answer.reason

    def _taken(self, message: AnyMessage) -> bool:
        return self._acknowledged(message).taken

    def _acknowledged(self, message: AnyMessage) -> Ack:
        answer = self._ask(message).message
        assert isinstance(answer, Ack), answer
        return answer

    def image(self) -> Image:
        """The image at or past a high watermark confirmed after this call."""
        answer = self._ask(ImageAtLeast()).message
        assert isinstance(answer, Image), answer
        return answer

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these removed topics; returns once the metadata log says so."""
        ids = list(topic_ids)
        for first in range(0, len(ids), EMPTIED_MAX):
            self._taken(TopicsEmptied(ids[first : first + EMPTIED_MAX]))
