"""Making topics, partitions and replicas on the active controller, for whoever asks it.

The decision is the controller's; here are only its node's defaults and rules for settings, fresh
ids, and what is waited for.
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
    """The metadata node's way in: decide on the newest image, make it durable, then answer."""

    def __call__(
        self,
        decide: Callable[[MetadataImage], Decided[R]],
        *,
        timeout_ms: int = ...,
        placed: Callable[[int], None] = ...,
    ) -> Awaitable[R]:
        """Return the decision's response once its records are committed.

        `timeout_ms`: how long the caller waits for that; 0 or less for the usual time. `placed`:
        called with the first offset after the decision, before anything else is decided.
        """
        ...


class Descriptors(Protocol):
    """What brokers have left of their descriptors, as far as the active controller knows."""

    def free_descriptors(self) -> Mapping[int, int]:
        """How many more replicas brokers take, by id; one that is not in it has no bound."""
        ...

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Note how many replicas brokers get by records below `end_offset` (exclusive)."""
        ...


Settled = Callable[[Collection[bytes]], asyncio.Future[None] | None]
"""Waits until nothing of topics, by id, is made or taken away here; None: that is so already."""


class Made(Protocol):
    """What became of one topic that was to get partitions."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def error(self) -> KafkaError | None:
        """Why it got none; None: it did."""

    @property
    def topic_id(self) -> bytes:
        """Its id, if it did."""

    @property
    def added(self) -> int:
        """How many are new."""


M = TypeVar("M", bound=Made)


def _log_made(event: str, made: Sequence[Made]) -> Steps[None]:
    pace = Pace()
    for topic in made:
        if topic.error is None:
            log.info("%s: name=%s partitions=%d", event, topic.name, topic.added)
        if pace.is_step_over(_LOG_LINE_WORK):
            yield


BACKLOG_MAX: Final = 20_000
"""While so many changes of replicas wait for this broker's disks, no topic is made."""
MANY_PARTITIONS: Final = 100
"""Who asks for more is a tool, not an application that produces in the same moment."""


class TopicCreation:
    """Creates topics, and further partitions and replicas of topics, through the metadata log.

    Attributes:
        patience_s: no longer does an answer wait for more than `MANY_PARTITIONS`; a client that is
            faster than these gets errors that it tries again, as from Kafka, which waits for none.
        descriptors: of the brokers; where there are none they have no bound.
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
        """Write through `submit`; `defaults` is asked at each call, as it may change.

        `settled` waits until this broker serves its replicas of topics; `backlog` says how many
        changes of replicas wait for its disks.
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
        """Create what can be created; see `create_topics`. Guarded names are not refused here.

        Returns when the replicas that this broker hosts are made and their directories are noted,
        or when patience or time are up: as in Kafka, topics that the metadata hold by then are
        created. `timeout_ms` as in `Submit`; of both waits together.

        Raises:
            ApiError: the disks are too far behind.
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
        """Add what can be added; see `create_partitions` of the controller, and `create`.

        Raises:
            ApiError: the disks are too far behind.
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
        """Add replicas to partitions; see `alter_reassignments` of the controller.

        Returns when the metadata hold it; new replicas are made and copied after that.
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
        if settled is not None:  # what is decided stands, however slow the disk is
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
        """Decide within what brokers have left of their descriptors."""
        known = self.descriptors
        budget = DescriptorBudget({})

        def with_budget(image: MetadataImage) -> Decided[list[T]]:
            nonlocal budget  # a decision may be taken twice
            budget = DescriptorBudget({} if known is None else known.free_descriptors())
            return decide(image, budget)

        def placed(end_offset: int) -> None:
            if known is not None and not validate_only:
                known.replicas_placed(budget.taken, end_offset)

        return await self._submit(with_budget, timeout_ms=timeout_ms, placed=placed)
