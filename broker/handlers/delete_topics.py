"""DeleteTopics (20): by name, from version 6 also by id; the name is free again at once.

Versions:

* 1: the lowest that Kafka 4 serves; throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: no new field; TOPIC_DELETION_DISABLED may be answered (KIP-322).
* 4: flexible (KIP-482).
* 5: error texts; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).
* 6: topics by name or id (KIP-516). A tagged field of Tidemark has a decision on the remote data of
  an id that no longer exists.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import GUARDED_TOPICS, ClusterView
from broker.topics.creation import Settled, Submit
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.primitives import uuid_to_text
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.result import ControllerResult, Decided
from metadata_topic.controller.topic_deletion import (
    DeletedTopic,
    RemoteDataWish,
    delete_topics,
    wish_for_remote_data,
)
from metadata_topic.image.image import MetadataImage
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

log = logging.getLogger(__name__)

_Response: Final = message("DeleteTopicsResponse").cls
_Result: Final = _Response.Responses

_SINCE_DELETION_DISABLED: Final = 3
_SINCE_TOPIC_IDS: Final = 6
_LOG_LINE_WORK: Final = 50

Asked = tuple[str | None, bytes]
"""A topic's name with the zero id, or None with an id."""


class DeleteTopicsHandler(DecodedHandler):
    """Serves DeleteTopics on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.DELETE_TOPICS
    versions = Versions(1, 6)

    def __init__(
        self,
        cluster: ClusterView,
        submit: Submit,
        *,
        enabled: bool,
        settled: Settled = lambda _ids: None,
    ) -> None:
        """Delete through `submit`.

        Args:
            cluster: Has the newest committed image.
            submit: Of the metadata node.
            enabled: `delete.topic.enable`.
            settled: Waits until this broker has removed the files of topics.
        """
        self._cluster = cluster
        self._submit = submit
        self._enabled = enabled
        self._settled = settled

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Delete topics; answers once it is committed and this broker's files are removed."""
        asked = _asked(context.api_version, request)
        if not self._enabled:
            code = (
                ErrorCode.INVALID_REQUEST
                if context.api_version < _SINCE_DELETION_DISABLED
                else ErrorCode.TOPIC_DELETION_DISABLED
            )
            return _Response(
                responses=[failed(one, code, "Topic deletion is disabled.") for one in asked]
            )
        wishes = wishes_of(context.api_version, request)
        asked = [one for one in asked if one[0] is not None or one[1] not in wishes]
        wanted, refused = self._without_repeated(asked)
        refused += [_guarded(one) for one in wanted if self._is_guarded(one)]
        wanted = [one for one in wanted if not self._is_guarded(one)]
        deleted = await self._delete(wanted, timeout_ms=request.timeout_ms)
        for topic_id, wish in wishes.items():
            deleted.append(await self._take_wish(topic_id, wish, timeout_ms=request.timeout_ms))
        return _Response(responses=refused + deleted)

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each topic: nothing was done."""
        asked = _asked(context.api_version, request)
        return _Response(responses=[failed(one, error.code, str(error)) for one in asked])

    answered_in = "responses"

    def asked_in(self, version: int) -> str:
        """Field of the request with the topics."""
        return "topics" if version >= _SINCE_TOPIC_IDS else "topic_names"

    def guarded(self, topic: Any) -> Any | None:
        """The refusal for a topic that only brokers delete; None for any other."""
        asked = (topic, ZERO_UUID) if isinstance(topic, str) else (topic.name, topic.topic_id)
        return _guarded(asked) if self._is_guarded(asked) else None

    def _without_repeated(self, asked: Sequence[Asked]) -> tuple[list[Asked], list[Any]]:
        """Separate topics that the request names more than once: they are refused and kept.

        Returns:
            The topics named once, and the refusals of the others.
        """
        image = self._cluster.image()
        by_identity: dict[Asked, list[Asked]] = {}
        for name, topic_id in asked:
            known = image.topics_by_id.get(topic_id) if name is None else None
            identity = (name, ZERO_UUID) if known is None else (known.name, ZERO_UUID)
            if name is None and known is None:
                identity = (None, topic_id)
            elif topic_id != ZERO_UUID and name is not None:
                identity = (name, topic_id)  # refused by the controller: a name and an id
            by_identity.setdefault(identity, []).append((name, topic_id))
        once: list[Asked] = []
        repeated: list[Any] = []
        for entries in by_identity.values():
            if len(entries) == 1:
                once += entries
                continue
            name = next((name for name, _ in entries if name is not None), None)
            topic_id = next((one for _, one in entries if one != ZERO_UUID), ZERO_UUID)
            reason = "The topic is named more than once."
            repeated.append(failed((name, topic_id), ErrorCode.INVALID_REQUEST, reason))
        return once, repeated

    async def _delete(self, wanted: Sequence[Asked], *, timeout_ms: int) -> list[Any]:
        if not wanted:
            return []

        def decide(image: MetadataImage) -> Decided[list[DeletedTopic]]:
            return delete_topics.steps(image, wanted)

        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1_000
        try:
            deleted = await self._submit(decide, timeout_ms=timeout_ms)
        except KafkaError as error:  # the decision could not be committed
            return [failed(one, error.code, str(error)) for one in wanted]
        away = self._settled([topic.topic_id for topic in deleted if topic.error is None])
        await run_in_steps(_log_deleted(deleted))
        if away is not None:  # the topic is deleted by now, however slow the disk is
            await asyncio.wait({away}, timeout=max(0.0, end_s - loop.time()))
        return [_answer(topic) for topic in deleted]

    async def _take_wish(self, topic_id: bytes, wish: int, *, timeout_ms: int) -> Any:
        """Serve a request of `tidemark remote forget`; Kafka's clients never send one."""
        asked = (None, topic_id)
        if wish not in (RemoteDataWish.FORGET, RemoteDataWish.KEEP):
            return failed(asked, ErrorCode.INVALID_REQUEST, f"RemoteData={wish}")
        wished = RemoteDataWish(wish)

        def decide(image: MetadataImage) -> ControllerResult[None]:
            return wish_for_remote_data(image, topic_id, wished)

        try:
            await self._submit(decide, timeout_ms=timeout_ms)
        except KafkaError as error:
            return failed(asked, error.code, str(error))
        log.warning(
            "remote data of a topic id: wish=%s topic_id=%s", wished.name, uuid_to_text(topic_id)
        )
        return taken(topic_id)

    def _is_guarded(self, asked: Asked) -> bool:
        """DIFFERS: Kafka lets clients delete `__remote_log_metadata`, and so all tiered data."""
        name, topic_id = asked
        if name is None:
            topic = self._cluster.image().topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        return name in GUARDED_TOPICS


def _log_deleted(deleted: Sequence[DeletedTopic]) -> Steps[None]:
    pace = Pace()
    for topic in deleted:
        if topic.error is None:
            topic_id = uuid_to_text(topic.topic_id)
            log.info("deleted topic: name=%s topic_id=%s", topic.name, topic_id)
        if pace.is_step_over(_LOG_LINE_WORK):
            yield


def _asked(version: int, request: Any) -> list[Asked]:
    if version >= _SINCE_TOPIC_IDS:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, ZERO_UUID) for name in request.topic_names]


def wishes_of(version: int, request: Any) -> dict[bytes, int]:
    """By topic id, the decision on the remote data of an id that does not exist."""
    if version < _SINCE_TOPIC_IDS:
        return {}
    return {
        topic.topic_id: topic.remote_data
        for topic in request.topics
        if topic.name is None and topic.remote_data != RemoteDataWish.NOTHING
    }


def taken(topic_id: bytes) -> Any:
    """The answer to a decision that was committed."""
    return _Result(name=None, topic_id=topic_id)


def _guarded(asked: Asked) -> Any:
    return failed(asked, ErrorCode.POLICY_VIOLATION, "This topic belongs to the brokers.")


def failed(asked: Asked, code: ErrorCode, reason: str) -> Any:
    """The answer for a topic that was not deleted."""
    return _Result(name=asked[0], topic_id=asked[1], error_code=code, error_message=reason)


def _answer(topic: DeletedTopic) -> Any:
    if topic.error is None:
        return _Result(name=topic.name, topic_id=topic.topic_id)
    return failed((topic.name, topic.topic_id), topic.error.code, str(topic.error))


def make(parts: "HandlerParts") -> DeleteTopicsHandler:
    """Make the handler of DeleteTopics."""
    return DeleteTopicsHandler(
        parts.cluster,
        parts.node.submit,
        enabled=parts.config.delete_topic_enable,
        settled=parts.replicas.hosting.settled,
    )
