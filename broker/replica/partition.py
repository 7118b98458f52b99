"""One partition as this broker hosts it: role, leader epoch, high watermark, waiting requests.

All of it belongs to the event loop's thread.

Invariants:
    * The high watermark never goes back while this broker leads the partition.
    * With one replica it follows the log end at once, else `InSyncReplicas` gives it. If
      `flush.messages` records wait for the fsync, only fsynced records of the leader's own log
      count. The same holds for a *durable* topic. `__remote_log_metadata` decides about deletions,
      so a reader must not see a record of it that a power cut could take back.
    * Requests that wait for bytes or for the high watermark are checked again after every move of
      it, after a change of the role, and when the partition leaves this broker.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Sequence
from typing import Any

from broker.replica.errors import (
    FencedLeaderEpoch,
    NotCommittedInTime,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    NotValidated,
    OffsetNotAvailable,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
)
from broker.replica.fetch_watch import FetchWatch, Waiter
from broker.replica.follower_reads import FollowerFacts, Heard, LeaderWord, decide, refuse
from broker.replica.followers import CommitFutures, Followers, Leader
from broker.replica.isr import LONE, NO_CHANGE, CommittedIsr, ReplicaChange
from broker.replica.leading import Leading
from broker.replica.topic_metrics import TopicCounters
from broker.replica.validation import (
    Standing,
    Validation,
    ValidationTally,
    Verdict,
    after,
    has_barrier,
    reopened,
)
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from local_log.config import LONG_MAX, LogConfig
from local_log.errors import CorruptMessage, KafkaStorageError
from local_log.log.opened_batches import Opening
from local_log.log.partition_log import PartitionLog
from local_log.log.results import AppendInfo, LogRead
from metadata_topic.controller.topic_specs import INTERNAL_TOPICS
from rlm.link.messages import Loss, LossFound, Report, Restoration
from runtime.executors import Pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)

DURABLE_TOPICS = frozenset({REMOTE_LOG_METADATA_TOPIC})
BROKER_OWNED_TOPICS = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
"""Topics of the broker's own: only authorised clients write them, and they are never tiered."""


class Partition:
    """A replica of a partition on this broker, with the state of a leader where it leads.

    Attributes:
        followers: Of a leader; None for a follower, and where there is one replica only.
        has_barrier: The tier has read its barrier of this leader epoch back.
        is_recovering: The leader that is followed was elected uncleanly and has not recovered.
        leader_word: Of the leader that is followed, once the two logs agree; else None.
        restoration: How the log may begin again remotely, as the tier found: nothing is left here.
        watches: Fetches of consumers; they wait for visible records.
        log_watches: Fetches of followers; they wait for appended records.
    """

    __slots__ = (
        "_commits",
        "_committed_bytes_pending",
        "_leading",
        "_own_end",
        "_pool",
        "_standing",
        "_validations",
        "counters",
        "deleted",
        "durable",
        "followers",
        "has_barrier",
        "is_flushing",
        "is_internal",
        "is_leader",
        "is_recovering",
        "isr",
        "leader_epoch",
        "leader_id",
        "leader_word",
        "log",
        "log_watches",
        "node_id",
        "partition",
        "partition_epoch",
        "replicas",
        "restoration",
        "topic",
        "topic_id",
        "topic_partition",
        "unclean_epoch",
        "verdict",
        "waiters",
        "watches",
    )

    def __init__(
        self,
        log: PartitionLog,
        *,
        node_id: int,
        pool: Pool,
        counters: TopicCounters,
        validations: ValidationTally | None = None,
        leading: Leading[Leader] | None = None,
    ) -> None:
        """Host the log; without `leading` it cannot be led with followers."""
        self.log = log
        self.counters = counters
        self.topic_partition = log.topic_partition
        self.topic, self.partition = log.topic_partition
        self.topic_id, self.node_id = log.topic_id, node_id
        self.durable = log.topic in DURABLE_TOPICS
        self.is_internal = log.topic in BROKER_OWNED_TOPICS
        self.is_leader = self.is_recovering = False
        self.leader_word: LeaderWord | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.unclean_epoch = -1
        self.replicas: Sequence[int] = ()
        self.isr: Sequence[int] = ()
        self.deleted = False
        self.verdict: Verdict = Validation.OPEN
        self.has_barrier = False
        self.restoration: Restoration | None = None
        # In the order of arrival, so that a simulated run can be replayed.
        self.waiters: dict[Waiter, None] = {}
        self.watches: dict[FetchWatch[Any], None] = {}
        self.log_watches: dict[FetchWatch[Any], None] = {}
        self.followers: Followers | None = None
        self._leading, self._own_end = leading, 0
        self._pool, self._validations = pool, validations
        self._standing = Standing.NOT_CONCERNED
        log.changed = self._wake
        self.is_flushing = False
        self._committed_bytes_pending = 0
        self._commits = CommitFutures()

    @property
    def high_watermark(self) -> int:
        """First offset (exclusive end) that consumers may not see yet."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset that read-committed consumers may not see yet."""
        return self.log.last_stable_offset

    def visible_end(self, *, read_committed: bool) -> int:
        """First offset that consumers of either isolation may not see yet."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    # -- role

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        change: ReplicaChange = NO_CHANGE,
        unclean_epoch: int = -1,
    ) -> None:
        """Lead from here on under `leader_epoch`; the epoch chain gets it at the next append.

        `unclean_epoch`: leader epoch of the unclean election not yet recovered from; -1: none.
        """
        self.unclean_epoch = unclean_epoch
        changed = not self.is_leader or leader_epoch != self.leader_epoch
        self.is_leader, self.leader_id = True, self.node_id
        self.leader_word = None
        self.leader_epoch = leader_epoch
        if changed:
            if self.verdict is Validation.SOUND or self.log.unvalidated_end < 0:
                self.log.begin_unvalidated()
            self.verdict, self.has_barrier = reopened(self.verdict), False
            self.restoration = None
            self._count()
            self.log.forget_copies()  # reports of an earlier role do not count
            self._note_epoch(leader_epoch)
            self._own_end = self.log.high_watermark
            self._end_leading()
        is_recovering = unclean_epoch >= 0
        self._learn_isr(
            CommittedIsr(leader_epoch, tuple(isr), is_recovering, partition_epoch, change),
            replicas,
        )
        self._drop_remote()
        if changed:
            self._wake()
        self._advance(0)

    def _note_epoch(self, leader_epoch: int) -> None:
        """Put the epoch into the epoch chain before its first record, as Kafka does.

        ListOffsets and OffsetForLeaderEpoch answer with it. DIFFERS: Kafka lets later epochs give
        way to an earlier one; remote offsets would then be of another epoch than their segments.
        """
        if self._is_epoch_too_low:
            log.warning(
                "leader epoch is too low: partition=%s leader_epoch=%d latest=%s",
                self.topic_partition,
                leader_epoch,
                self.log.epochs.latest_epoch,
            )
            return
        self.log.epochs.assign(leader_epoch, self.log.log_end_offset)

    @property
    def _is_epoch_too_low(self) -> bool:
        """True if a tiered log ends in a later epoch: the cluster metadata are an older copy."""
        latest = self.log.epochs.latest_epoch
        return (
            self.log.config.remote_storage_enable
            and latest is not None
            and latest > self.leader_epoch
        )

    def pause(self) -> None:
        """Take no role until the next one: another leads, or an epoch chain is written first."""
        self.is_leader, self.leader_id = False, -1
        self._count()

    def lead_on(self) -> None:
        """Lead as before `pause`: under the same epoch, with the same followers."""
        self.is_leader, self.leader_id = not self.deleted, self.node_id
        self._count()
        self._wake()
        self._advance(0)

    def become_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        is_recovering: bool = False,
    ) -> None:
        """Follow another broker; parked requests fail with NOT_LEADER_OR_FOLLOWER.

        `is_recovering`: that leader was elected uncleanly and has not recovered.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            self.log.forget_copies()  # reports of an earlier role do not count
            self.leader_word = None
        self.is_recovering = is_recovering
        self.is_leader, self.leader_id = False, leader_id
        self._end_leading()
        self.leader_epoch, self.partition_epoch = leader_epoch, partition_epoch
        self.replicas, self.isr, self.verdict = replicas, isr, Validation.OPEN
        self.unclean_epoch = -1
        self.log.end_unvalidated()
        self._count()
        self._drop_remote()
        self._commits.fail(self._led_elsewhere())
        self._wake()

    def follow(
        self, *, high_watermark: int, log_start_offset: int, heard: Heard, new_bytes: int = 0
    ) -> bool:
        """Take over the leader's statement; the high watermark as far as this log reaches.

        Args:
            high_watermark: The leader's.
            log_start_offset: The leader's; -1 where the leader does not have it.
            heard: When the leader last answered; kept until `unheard`.
            new_bytes: Bytes appended here since the last call.

        Returns:
            True if the log start has moved; the caller makes it durable, see `raise_log_start`.

        Raises:
            OffsetOutOfRange: Its log begins above the committed records.
            KafkaStorageError: The disk failed.
        """
        log = self.log
        self._committed_bytes_pending += new_bytes
        self._raise_high_watermark(min(high_watermark, log.log_end_offset))
        is_higher = log_start_offset > log.log_start_offset
        if is_higher:
            log.raise_log_start(log_start_offset)
        self.leader_word = LeaderWord(log_start_offset, heard)
        if is_higher:
            self._wake()  # requests below the log start
        return is_higher

    def unheard(self) -> None:
        """The leader is not fetched from: its log start may move unnoticed from here on."""
        if self.leader_word is not None:
            self.leader_word = LeaderWord(self.leader_word.log_start_offset, None)

    def replace_log(self, log: PartitionLog) -> None:
        """Continue with another log in place of the present one; a leader is paused before.

        Reports on the former log do not count for it. A loss stays until this one is validated.
        """
        assert not self.is_leader
        log.set_config(self.log.config)
        self.log, log.changed = log, self._wake
        self.restoration = self.leader_word = None
        self._drop_remote()
        self._wake()

    def retire(self) -> None:
        """Leave this broker; waiting requests look again, and appends that wait fail."""
        self.deleted, self.is_leader = True, False
        self._end_leading()
        self._count()
        self._commits.fail(self._led_elsewhere())
        self._wake()

    def check_leader(self, current_leader_epoch: int) -> None:
        """Refuse a request that was meant for another leader or another time.

        Raises:
            NotLeaderOrFollower: This broker does not lead.
            FencedLeaderEpoch, UnknownLeaderEpoch: By `check_epoch`.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic_partition} is led by {self.leader_id}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a request of another leader epoch.

        Args:
            current_leader_epoch: Of the client's metadata; -1 where it is not given.

        Raises:
            FencedLeaderEpoch: The client's is older.
            UnknownLeaderEpoch: The client's is newer.

        Source: KIP-320.
        """
        if current_leader_epoch not in (-1, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch(
                    f"leader epoch {current_leader_epoch} is older than {self.leader_epoch}"
                )
            raise UnknownLeaderEpoch(
                f"leader epoch {current_leader_epoch} is newer than {self.leader_epoch}"
            )

    def check_follower(self, offset: int, *, read_committed: bool) -> None:
        """Refuse a consumer's read that this follower may not answer, by `follower_reads`.

        Raises:
            NotLeaderOrFollower: No leader of this epoch has answered yet.
            OffsetOutOfRange: The leader has deleted the offset.
            ReplicaNotAvailable, LogIsTruncated: Only the leader has the answer.
        """
        log = self.log
        log.lease.refuse_read()
        is_followed = not self.deleted and self.leader_id >= 0
        local_start = log.local_log_start_offset
        facts = FollowerFacts(
            word=self.leader_word if is_followed else None,
            is_recovering=self.is_recovering,
            log_start=log.log_start_offset,
            local_start=local_start,
            log_end=log.log_end_offset,
            visible_end=self.visible_end(read_committed=read_committed),
            knows_epoch=offset >= local_start
            or (not self.is_chain_lost and log.epochs.epoch_for(offset) is not None),
        )
        refuse(
            decide(offset, facts),
            offset,
            facts,
            f"{self.topic_partition} is led by {self.leader_id}",
        )

    def check_log_start_known(self) -> None:
        """Refuse to report offsets as deleted while the log start is unknown.

        A consumer with that answer would reset, and skip the records in the remote tier.
        DIFFERS: Kafka takes the local start for the log start then.

        Raises:
            ReplicaNotAvailable: The checkpoint was lost; the tier finds the log start again.
        """
        if not self.log.log_start_known:
            raise ReplicaNotAvailable(f"the log start of {self.topic_partition} is not known yet")

    @property
    def is_chain_lost(self) -> bool:
        """True if the epochs of remote offsets are unknown."""
        return bool(self.log.epoch_file.lost) or self.verdict is Loss.CHAIN

    def check_chain_known(self) -> None:
        """Refuse an answer by epochs of remote offsets that are unknown or may be wrong.

        Raises:
            ReplicaNotAvailable: The epoch chain was lost; the tier or an operator restores it.
        """
        if self.is_chain_lost:
            raise ReplicaNotAvailable(f"the epoch chain of {self.topic_partition} was lost")

    def check_log_end(self) -> None:
        """Refuse to append at a log end above which offsets were assigned before.

        Raises:
            NotValidated: The end of the log was lost.
        """
        if self.verdict is Loss.LOG_END:
            raise NotValidated(f"the log end of {self.topic_partition} was lost")

    @property
    def is_sound(self) -> bool:
        """True if the tier validated log end, epoch chain and log start, or does not tier this log.

        The directory may be an older copy: until then acknowledged records may lie above its end.
        """
        if isinstance(self.verdict, Loss):
            return False
        return self.verdict is Validation.SOUND or not self._is_concerned

    @property
    def _is_concerned(self) -> bool:
        """True if a tier validates this log where it is led."""
        has_tier = self._validations is not None
        return has_tier and self.log.config.is_tiered and not self.is_internal

    @property
    def is_unvalidated(self) -> bool:
        """True if the tier has still to validate the log: it may yet be sound."""
        return self.verdict is Validation.OPEN and not self.is_sound

    def check_sound(self) -> None:
        """Refuse any answer about offsets at or above the log end.

        A consumer with such an answer resets or truncates, and skips acknowledged records.
        DIFFERS: Kafka takes the log end for true (docs/decisions/before-the-validation.md).

        Raises:
            NotValidated: The tier has not validated the log yet, or found a loss.
        """
        if not self.is_sound:
            raise NotValidated(
                f"the remote tier has not found {self.topic_partition} sound: {self.verdict.value}"
            )

    def take_report(self, report: Report) -> None:
        """Take a report of the tier; waiting requests look again if the verdict changes."""
        self.has_barrier = has_barrier(report)
        if self.followers is not None:
            self.followers.offer_to_recover()
        self.restoration = report.restoration if isinstance(report, LossFound) else None
        verdict = after(self.verdict, report)
        if verdict is Validation.SOUND:
            self.log.end_unvalidated()
        elif self.verdict is Validation.SOUND:
            self.log.begin_unvalidated()
        if verdict is not self.verdict:
            self.verdict = verdict
            self._count()
            self._wake()

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings of the log; they may make the topic tiered, or no longer tiered."""
        self.log.set_config(config)
        if self.followers is not None:
            self.followers.set_min_insync_replicas(config.min_insync_replicas)
            self._advance(0)
        self._count()
        self.log.lease.when_here(self._drop_remote)

    def _drop_remote(self) -> None:
        """Raise the log start to the local start where all remote data are to be deleted.

        In every role: the next leader may have dropped more from its disk than this one, and the
        offsets between would be in no tier.
        """
        log = self.log
        start = log.local_log_start_offset
        may_raise = log.log_start_known and not log.is_offline and start <= log.high_watermark
        if log.config.drops_remote and may_raise and start > log.log_start_offset:
            log.raise_log_start(start)
            self._wake()

    def _count(self) -> None:
        """Keep the tally: call it wherever role, verdict or settings have changed."""
        if self._validations is None:
            return
        standing = Standing.NOT_CONCERNED
        if self.is_leader and self._is_concerned:
            standing = Standing.UNVALIDATED if self.is_unvalidated else Standing.VALIDATED
        self._validations.move(self._standing, standing)
        self._standing = standing

    def log_start_raised(self) -> None:
        """Wake requests that wait below the log start, which has moved."""
        self._wake()

    # -- append

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        now_ms: int,
        required_acks: int = -1,
        opening: Opening = Opening.AT_ONCE,
        from_client: bool = True,
    ) -> AppendInfo:
        """Append one batch and let readers see it.

        Args:
            batch: Exactly one batch, writable; offset and epoch are patched in place.
            now_ms: Wall clock.
            required_acks: -1 requires `min.insync.replicas` in-sync replicas.
            opening: See `PartitionLog.append_as_leader`.
            from_client: Likewise.

        Returns:
            The offsets assigned. With acks=-1 the caller awaits `committed(info.last_offset + 1)`.

        Raises:
            KafkaError: With the code for the client; nothing was appended.
            MustBeOpened: From `PartitionLog.append_as_leader`; nothing was appended.
        """
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.topic_partition} is led by {self.leader_id}")
        log, followers = self.log, self.followers
        if required_acks == -1 and followers is not None and followers.in_sync.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas of "
                f"min.insync.replicas={followers.in_sync.min_isr}: nothing was appended; start the "
                "brokers of its other replicas"
            )
        if self.verdict is Loss.LOG_END:
            self.check_log_end()
        if self.leader_epoch != log.epochs.latest_epoch and self._is_epoch_too_low:
            raise KafkaStorageError(f"the leader epoch of {self.topic_partition} is too low")
        epoch, write = self.leader_epoch, log.append_as_leader
        info = write(
            batch, leader_epoch=epoch, now_ms=now_ms, from_client=from_client, opening=opening
        )
        if followers is not None and not info.is_duplicate:
            followers.appended(info.first_offset)
        self._advance(len(batch))
        return info

    def committed(self, end_offset: int, *, leader_epoch: int | None = None) -> Future[None] | None:
        """Wait until everything below `end_offset` (exclusive) is committed.

        Args:
            end_offset: Of an append.
            leader_epoch: Of the append, where the event loop has run since: another leader may
                have other records at these offsets by now.

        Returns:
            None if all is committed already, else a future. It fails if the role changes, or has.
        """
        if leader_epoch not in (None, self.leader_epoch) or self.deleted:
            failed: Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(self._led_elsewhere())
            return failed
        if self.log.high_watermark >= end_offset:
            return None
        return self._commits.add(end_offset)

    # -- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one_batch: bool,
        may_wait: bool = True,
    ) -> LogRead:
        """Find the batches from `offset` on; of a durable topic only whole and undamaged ones.

        DIFFERS: Kafka leaves damage to its readers. The tier reads by librdkafka, whose process
        ends at a wrong checksum.

        Raises:
            CorruptMessage: A durable topic's batch at `offset` is damaged.
            WouldWait, KafkaError: From `PartitionLog.read`.
        """
        log = self.log
        try:
            found = log.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                min_one_batch=min_one_batch,
                may_wait=may_wait,
            )
            if not self.durable:
                return found
            if not may_wait:
                log.segments.check_resident(found)
            return log.segments.sound(found)
        except CorruptMessage:
            if self.durable:
                log.note_damage()
            raise

    # -- followers

    def _learn_isr(self, committed: CommittedIsr, replicas: Sequence[int]) -> None:
        """Take a committed state, unless it is not newer than the last one."""
        followers = self.followers
        if followers is not None:
            if not followers.learn(committed, replicas):
                return
        elif len(replicas) > 1:
            assert self._leading is not None, "a partition with followers is led by a whole broker"
            followers = Followers(self, self._leading, self._pool, committed, replicas)
            self.followers = followers
        self.partition_epoch, self.replicas = committed.partition_epoch, replicas
        self.isr = committed.isr
        if followers is not None:
            followers.isr_changed()
        elif self._leading is not None:
            self._leading.note(self, LONE)

    def review(self, now_ms: int) -> None:
        """Shrink and grow the ISR as the lag of its followers asks for; `Leading` calls this."""
        if self.followers is not None and not self.log.is_offline:
            self.followers.review(now_ms)

    def _end_leading(self) -> None:
        if self.followers is not None:
            self.followers.end()
            self.followers.cuts.fail(self._led_elsewhere())
        self.followers = None
        self.log.hold.end()
        if self._leading is not None:
            self._leading.note(self, ())

    def _led_elsewhere(self) -> NotLeaderOrFollower:
        where = "gone" if self.deleted else "led elsewhere now"
        return NotLeaderOrFollower(f"{self.topic_partition} is {where}")

    def check_watermark_settled(self) -> None:
        """Refuse to report the high watermark before this leader can have it (KIP-207).

        Raises:
            OffsetNotAvailable: It is below the first offset of this leader epoch.
        """
        if self.followers is not None and not self.followers.is_watermark_settled:
            raise OffsetNotAvailable(
                f"the high watermark of {self.topic_partition} is not known yet: it is below the "
                f"first offset of leader epoch {self.leader_epoch}"
            )

    @property
    def members_log_start(self) -> int:
        """`Followers.checkpointed_log_start`; LONG_MAX with one replica only."""
        return LONG_MAX if self.followers is None else self.followers.checkpointed_log_start

    @property
    def members_highest_log_start(self) -> int:
        """`Followers.highest_log_start`; -1 with one replica only."""
        return -1 if self.followers is None else self.followers.highest_log_start

    def cut_everywhere(self, log_start_offset: int) -> Future[None] | None:
        """`Followers.cut_everywhere`; None with one replica only."""
        return None if self.followers is None else self.followers.cut_everywhere(log_start_offset)

    def until_settled(self) -> Future[None] | None:
        """`committed`, for all records that earlier leaders may have acknowledged."""
        if self.followers is None:
            return None
        return self.committed(self.followers.in_sync.epoch_start_offset)

    # -- high watermark

    def _advance(self, appended_bytes: int) -> None:
        """Move the high watermark as far as the replicas allow."""
        log = self.log
        if self.durable or self.is_flushing or log.is_flush_due:
            self._committed_bytes_pending += appended_bytes
            self._start_flush()
        elif self.followers is None:
            self._set_high_watermark(log.log_end_offset, appended_bytes)
            return
        else:
            self._committed_bytes_pending += appended_bytes
            self._own_end = log.log_end_offset
        if self.followers is not None:
            for watch in list(self.log_watches):
                watch.on_bytes(self, appended_bytes)
            self.advance_replicated()

    def advance_replicated(self) -> None:
        """Move the high watermark as far as the replicas allow; nothing with one replica only."""
        if self.followers is not None:
            self._raise_high_watermark(self.followers.high_watermark(self._own_end))

    def _raise_high_watermark(self, high_watermark: int) -> None:
        log = self.log
        if high_watermark > log.high_watermark:
            # Beside waiters of an incarnation before: those look again in vain.
            size_bytes = self._committed_bytes_pending or LONG_MAX
            if high_watermark >= log.log_end_offset:
                self._committed_bytes_pending = 0
            self._set_high_watermark(high_watermark, size_bytes)

    def waits_for_commit(self, required_acks: int) -> bool:
        """True if an append with these acks is answered only when it is committed.

        With `flush.messages` this includes acks=1, as in Kafka.
        """
        if required_acks == -1:
            return self.followers is not None or self.durable or self.is_flushing
        return required_acks != 0 and self.is_flushing and not self.durable

    def not_committed_error(self) -> KafkaError:
        """The answer to an append that was not committed within its timeout."""
        in_sync = None if self.followers is None else self.followers.in_sync
        if in_sync is not None and in_sync.is_under_min_isr:
            return NotEnoughReplicasAfterAppend(
                f"{self.topic_partition} has {len(in_sync.isr)} in-sync replicas of "
                f"min.insync.replicas={in_sync.min_isr}: the records are in the log, and are "
                "committed when others are in sync again"
            )
        return NotCommittedInTime("not committed in time")

    def _set_high_watermark(self, offset: int, new_bytes: int) -> None:
        if offset > self.log.high_watermark:
            self.log.update_high_watermark(offset)
        if self._commits.waiting:
            self._commits.reached(self.log.high_watermark)
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.on_bytes(new_bytes)
        if self.watches:
            for watch in list(self.watches):
                watch.on_bytes(self, new_bytes)
        if self.log_watches:
            for watch in list(self.log_watches):
                watch.note(self)

    def _start_flush(self) -> None:
        end = self.log.log_end_offset
        flushed = self.log.high_watermark if self.followers is None else self._own_end
        if self.is_flushing or flushed >= end:
            return
        self.is_flushing = True
        size = self._committed_bytes_pending
        if self.followers is None:
            self._committed_bytes_pending = 0
        done = asyncio.ensure_future(self._pool.run(self.log.flush))
        done.add_done_callback(lambda future: self._flushed(future, end, size))

    def _flushed(self, done: Future[None], end_offset: int, size_bytes: int) -> None:
        self.is_flushing = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error(Incident.FSYNC_FAILED.line(partition=self.topic_partition, error=error))
            if not isinstance(error, KafkaError):
                error = KafkaStorageError(f"fsync of {self.topic_partition} failed: {error}")
            self._commits.fail(error)  # they cannot be committed before a restart
            return
        if not self.is_leader:
            return
        if self.followers is not None:
            # The log may have been truncated meanwhile, and have grown again.
            self._own_end = max(self._own_end, min(end_offset, self.log.recovery_point))
            self._advance(0)
            return
        self._set_high_watermark(end_offset, size_bytes)
        size_bytes, self._committed_bytes_pending = self._committed_bytes_pending, 0
        self._advance(size_bytes)

    def _wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.on_change()
        for watch in [*self.watches, *self.log_watches]:
            watch.on_change(self)
