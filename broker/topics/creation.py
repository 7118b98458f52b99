"""Creates topics, partitions and replicas on the active controller.

The controller module decides. This module adds the node's defaults, the validation of settings and
fresh ids, and waits until the replicas of this broker exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.partitions import GrownTopic, MorePartitions, create_partitions
from metadata_topic.controller.reassignment import Reassignment, alter_reassignments
from metadata_topic.controller.result import Decided
from metadata_topic.controller.topic_specs import NewTopic, TopicDefaults
from metadata_topic.controller.topics import ConfigValidator, CreatedTopic, create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from runtime.rng import Rng
from runtime.work import Pace, Steps, run_in_steps

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")
_LOG_LINE_WORK: Final = 50


class Submit(Protocol):
    """Submits a decision to the metadata node, which decides on the newest image and commits it."""

    def __call__(
        self,
        decide: Callable[[MetadataImage], Decided[R]],
        *,
        timeout_ms: int = ...,
        placed: Callable[[int], None] = ...,
    ) -> Awaitable[R]:
        """Return the decision's response once its records are committed.

        Args:
            decide: Pure; may be called more than once.
            timeout_ms: How long the caller waits; 0 or less for the default.
            placed: Called with the offset after the decision (exclusive end), before the next
                decision.
        """
        ...


class Descriptors(Protocol):
    """Free descriptors of the brokers, as last reported to the active controller."""

    def free_descriptors(self) -> Mapping[int, int]:
        """How many more replicas each broker can take, by id; a missing broker has no bound."""
        ...

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Record how many replicas each broker gets by records below `end_offset` (exclusive)."""
        ...


Settled = Callable[[Collection[bytes]], asyncio.Future[None] | None]
"""Waits until all changes of these topics' replicas here are done; None: none is pending."""


class Made(Protocol):
    """Result for one topic that was to get partitions."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def error(self) -> KafkaError | None:
        """The error, None on success."""

    @property
    def topic_id(self) -> bytes:
        """The topic's id, on success."""

    @property
    def added(self) -> int:
        """Number of new partitions."""


M = TypeVar("M", bound=Made)


def _log_made(event: str, made: Sequence[Made]) -> Steps[None]:
    pace = Pace()
    for topic in made:
        if topic.error is None:
            log.info("%s: name=%s partitions=%d", event, topic.name, topic.added)
        if pace.is_step_over(_LOG_LINE_WORK):
            yield


BACKLOG_MAX: Final = 20_000
"""With this many pending changes of replicas on this broker, no topic is created."""
MANY_PARTITIONS: Final = 100
"""A request for more comes from a tool, not from an application about to produce."""


class TopicCreation:
    """Creates topics, and further partitions and replicas of topics, through the metadata log.

    Attributes:
        patience_s: Limit on the wait for more than `MANY_PARTITIONS`. A faster client gets
            retriable errors, as from Kafka, which does not wait.
        descriptors: Free descriptors of the brokers; None: no bound.
    """

    patience_s: float = 0.5
    descriptors: Descriptors | None = None

    def __init__(
        self,
        submit: Submit,
        *,
        defaults: Callable[[], TopicDefaults],
        validate_config: ConfigValidator,
        rng: Rng,
        settled: Settled = lambda _ids: None,
        backlog: Callable[[], int] = lambda: 0,
    ) -> None:
        """Submit decisions by `submit`.

        Args:
            submit: Of the metadata node.
            defaults: Called for each creation, because settings may change.
            validate_config: Validates a topic's settings.
            rng: Source of topic ids and of the first broker of a placement.
            settled: Waits until this broker serves its replicas of topics.
            backlog: Number of changes of replicas that wait for this broker's disks.
        """
        self._submit = submit
        self._defaults = defaults
        self._validate_config = validate_config
        self._rng = rng
        self._settled = settled
        self._backlog = backlog

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[CreatedTopic]:
        """Create topics by `create_topics` of the controller, which does not refuse guarded names.

        Returns when the replicas of this broker exist and their directories are assigned, or when
        `patience_s` or the time is up. As in Kafka, topics in the metadata by then count as
        created. `timeout_ms` is as in `Submit`, for both waits together.

        Raises:
            ApiError: Too many changes of replicas are pending.
        """
        ids = [self._rng.uuid() for _ in topics]
        start = int(self._rng.random() * 1_000)

        def decide(image: MetadataImage, budget: DescriptorBudget) -> Decided[list[CreatedTopic]]:
            return create_topics.steps(
                image,
                topics,
                defaults=self._defaults(),
                topic_ids=ids,
                validate_config=self._validate_config,
                validate_only=validate_only,
                placement_start=start,
                descriptors=budget,
            )

        return await self._carry_out(
            "created topic", decide, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[GrownTopic]:
        """Add partitions by `create_partitions` of the controller; waits as `create` does.

        Raises:
            ApiError: Too many changes of replicas are pending.
        """
        start = int(self._rng.random() * 1_000)

        def decide(image: MetadataImage, budget: DescriptorBudget) -> Decided[list[GrownTopic]]:
            return create_partitions.steps(
                image,
                topics,
                validate_only=validate_only,
                placement_start=start,
                descriptors=budget,
            )

        return await self._carry_out(
            "added partitions", decide, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def alter_reassignments(
        self,
        asked: Sequence[Reassignment],
        *,
        allows_other_factor: bool,
        defaults: ElectionRules,
        timeout_ms: int = 0,
    ) -> list[KafkaError | None]:
        """Add replicas by `alter_reassignments` of the controller.

        Returns when the metadata are committed; the new replicas are created and copied later.
        """

        def decide(
            image: MetadataImage, budget: DescriptorBudget
        ) -> Decided[list[KafkaError | None]]:
            return alter_reassignments.steps(
                image,
                asked,
                allows_other_factor=allows_other_factor,
                defaults=defaults,
                descriptors=budget,
            )

        return await self._decided(decide, timeout_ms=timeout_ms)

    async def _carry_out(
        self,
        event: str,
        decide: Callable[[MetadataImage, DescriptorBudget], Decided[list[M]]],
        *,
        validate_only: bool,
        timeout_ms: int,
    ) -> list[M]:
        """Decide, and wait until this broker serves its new replicas."""
        waiting = self._backlog()
        if waiting >= BACKLOG_MAX and not validate_only:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{waiting} changes of partitions wait for this broker's disks (at most "
                f"{BACKLOG_MAX}): try again when they are done",
            )
        wait_ms = timeout_ms if timeout_ms > 0 else DECISION_TIMEOUT_MS
        end_s = asyncio.get_running_loop().time() + wait_ms / 1_000
        made = await self._decided(decide, validate_only=validate_only, timeout_ms=timeout_ms)
        if validate_only:
            return made
        settled = self._settled([topic.topic_id for topic in made if not topic.error])
        await run_in_steps(_log_made(event, made))
        if settled is not None:  # the topic is created by now, however slow the disk is
            left_s = end_s - asyncio.get_running_loop().time()
            if sum(topic.added for topic in made) > MANY_PARTITIONS:
                left_s = min(left_s, self.patience_s)
            await asyncio.wait({settled}, timeout=max(0.0, left_s))
        return made

    async def _decided(
        self,
        decide: Callable[[MetadataImage, DescriptorBudget], Decided[list[T]]],
        *,
        validate_only: bool = False,
        timeout_ms: int,
    ) -> list[T]:
        """Decide within the free descriptors of the brokers."""
        known = self.descriptors
        budget = DescriptorBudget({})

        def with_budget(image: MetadataImage) -> Decided[list[T]]:
            nonlocal budget  # a decision may be made twice
            budget = DescriptorBudget({} if known is None else known.free_descriptors())
            return decide(image, budget)

        def placed(end_offset: int) -> None:
            if known is not None and not validate_only:
                known.replicas_placed(budget.taken, end_offset)

        return await self._submit(with_budget, timeout_ms=timeout_ms, placed=placed)
