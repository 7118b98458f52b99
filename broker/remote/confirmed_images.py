"""Waits until the image may answer questions of the tier, with several controllers.

`image_confirmation` has the rule. Questions that come while one DescribeQuorum is under way share
the next one: only a DescribeQuorum sent after a question proves anything for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker.config.rules import IDLE_INTERVAL_MS_MAX
from broker.remote.image_confirmation import LeaderEnd, Seen, Verdict, leader_end, validate
from kafka_protocol.errors import ApiError, ErrorCode
from metadata_topic.quorum.node import MetadataNode
from runtime.ports import Ports
from runtime.scheduler import pause

DEADLINE_MS: Final = 25_000
"""Twice this, for a question that first waits for others, is below the tier's own timeout."""
ASK_AGAIN_MS: Final = 200
POLL_AGAIN_MS: Final = 20
_ANSWER_MS: Final = 5_000

DescribeQuorum = Callable[[int], Awaitable[Any]]
"""Asks the leader, with a timeout in ms: the partition of its answer, None without one."""


class ConfirmedImages:
    """Confirms images for questions of the tier; use it from the event loop's thread only."""

    def __init__(self, node: MetadataNode, describe_quorum: DescribeQuorum, ports: Ports) -> None:
        """Send nothing yet."""
        self._node, self._describe_quorum = node, describe_quorum
        self._clock, self._scheduler = ports.clock, ports.scheduler
        self._now: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def confirm(self) -> None:
        """Return when the node's image has each change acknowledged before the call.

        Raises:
            ApiError: It is not confirmed after `DEADLINE_MS`; the text says what is missing.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._now))
        await asyncio.shield(self._next)

    async def _after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait({before})
        self._now, self._next = self._next, None  # later callers wait for the next one
        await self._until_confirmed()

    async def _until_confirmed(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + DEADLINE_MS
        end: LeaderEnd | None = None
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            if end is None:
                partition = await self._describe_quorum(min(left_ms, _ANSWER_MS))
                end = None if partition is None else leader_end(partition)
            verdict = Verdict.ASK_AGAIN if end is None else validate(end, self._seen())
            if verdict is Verdict.ANSWER:
                return
            if verdict is Verdict.ASK_AGAIN:
                end = None
            await pause(self._scheduler, ASK_AGAIN_MS if end is None else POLL_AGAIN_MS)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, self._missing(end))

    def _seen(self) -> Seen:
        node = self._node
        return Seen(node.leader_epoch, node.high_watermark, node.image.provenance.end_offset)

    def _missing(self, end: LeaderEnd | None) -> str:
        text = f"the image of the metadata is not known to be new enough after {DEADLINE_MS} ms"
        if end is None:
            return f"{text}: no active controller answers DescribeQuorum for one epoch so long"
        return (
            f"{text}: {self._seen()} has not passed {end}; the controllers need "
            f"metadata.max.idle.interval.ms from 1 to {IDLE_INTERVAL_MS_MAX}"
        )
