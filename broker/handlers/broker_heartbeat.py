"""BrokerHeartbeat (63): a broker's sign of life and its metadata offset; controllers serve it.

Versions:

* 0: KIP-631; flexible from the start.
* 1: log directories that failed (KIP-858).
* 2: directories that take no new replica (KIP-1066). Brokers of Kafka ask so from metadata.version
  4.3 on. The field is ignored: the image has no cordoned directories, so that a new replica may
  come to one of them.

A tagged field of Tidemark has the number of files that the broker may still open.
"""

from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.heartbeats import Heartbeat, HeartbeatAnswer
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.submit import outcome_of

_Response: Final = response(ApiKey.BROKER_HEARTBEAT).cls


class BrokerHeartbeatHandler(DecodedHandler):
    """Answers BrokerHeartbeat on a controllers' listener."""

    api_key = ApiKey.BROKER_HEARTBEAT
    versions = Versions(0, 2)

    def __init__(self, brokers: BrokerControl, *, heartbeat_interval_ms: int) -> None:
        """Process heartbeats; each is answered within half of `broker.heartbeat.interval.ms`."""
        self._brokers = brokers
        self._timeout_ms = max(1, heartbeat_interval_ms // 2)

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Process one heartbeat; answers with the broker's state once that is committed."""
        asked = Heartbeat(
            request.broker_id,
            request.broker_epoch,
            request.current_metadata_offset,
            request.want_fence,
            request.want_shut_down,
            tuple(request.offline_log_dirs),
            request.free_descriptors,
        )
        try:
            answer: HeartbeatAnswer = await outcome_of(
                lambda done: self._brokers.heartbeat(asked, done, timeout_ms=self._timeout_ms)
            )
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "take a heartbeat")))
        return _Response(
            is_caught_up=answer.is_caught_up,
            is_fenced=answer.is_fenced,
            should_shut_down=answer.should_shut_down,
        )
