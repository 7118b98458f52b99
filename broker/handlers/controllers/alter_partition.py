"""AlterPartition (56): the leader of partitions proposes new ISRs.

Versions:

* 2: topics by id (KIP-841).
* 3: members with their broker epochs (KIP-903).
"""

import logging
from functools import partial
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.primitives import uuid_to_text
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.alter_partition import (
    ANY_EPOCH,
    AlteredPartition,
    ProposedIsr,
    alter_partition,
)
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import ElectionRules
from runtime.work import Pace, Steps, run_in_steps

log = logging.getLogger(__name__)

_Response: Final = response(ApiKey.ALTER_PARTITION).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_PARTITION_WORK: Final = 10


class AlterPartitionHandler(DecodedHandler):
    """Answers AlterPartition on a controllers' listener."""

    api_key = ApiKey.ALTER_PARTITION
    versions = Versions(2, 3)

    def __init__(self, submit: Submit, defaults: ElectionRules) -> None:
        """`defaults` are the election rules in the controller's properties."""
        self._submit, self._defaults = submit, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Decide on all proposals at once; each partition gets its own error."""
        decide = partial(
            alter_partition.steps,
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            proposals=await run_in_steps(_proposals(request, context.api_version)),
            defaults=self._defaults,
        )
        try:
            altered: list[AlteredPartition] = await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "alter partitions")))
        refused = [(one.replica, one.error) for one in altered if one.error is not None]
        if refused:
            replica, first = refused[0]
            log.info(
                "ISRs were refused: broker=%d count=%d first=%s-%d code=%s reason=%s",
                request.broker_id,
                len(refused),
                uuid_to_text(replica.topic_id),
                replica.partition,
                first.code.name,
                first,
            )
        return await run_in_steps(_answer(request, altered))


def _proposals(request: Any, version: int) -> Steps[list[ProposedIsr]]:
    proposals: list[ProposedIsr] = []
    pace = Pace()
    for topic in request.topics:
        for one in topic.partitions:
            if version >= 3:
                members = tuple((m.broker_id, m.broker_epoch) for m in one.new_isr_with_epochs)
            else:
                members = tuple((broker_id, ANY_EPOCH) for broker_id in one.new_isr)
            proposals.append(
                ProposedIsr(
                    ReplicaId(topic.topic_id, one.partition_index),
                    one.leader_epoch,
                    one.partition_epoch,
                    members,
                    one.leader_recovery_state,
                )
            )
            if pace.is_step_over(_PARTITION_WORK):
                yield
    return proposals


def _answer(request: Any, altered: list[AlteredPartition]) -> Steps[Any]:
    topics: list[Any] = []
    remaining = iter(altered)
    pace = Pace()
    for topic in request.topics:
        partitions: list[Any] = []
        for _ in topic.partitions:
            partitions.append(_partition(next(remaining)))
            if pace.is_step_over(_PARTITION_WORK):
                yield
        topics.append(_Topic(topic_id=topic.topic_id, partitions=partitions))
    return _Response(topics=topics)


def _partition(altered: AlteredPartition) -> Any:
    index, now = altered.replica.partition, altered.partition
    if now is None:
        assert altered.error is not None
        return _Partition(partition_index=index, error_code=int(altered.error.code))
    return _Partition(
        partition_index=index,
        leader_id=now.leader,
        leader_epoch=now.leader_epoch,
        isr=list(now.isr),
        leader_recovery_state=now.leader_recovery_state,
        partition_epoch=now.partition_epoch,
    )
