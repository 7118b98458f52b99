"""The asking side of a Fetch session (KIP-227): a leader is sent changes only.

The session knows what is wanted of each partition and what the leader was told last; the next
question is the difference. Where an answer is missing, nobody knows what the leader has: the next
question is a full one, which ends the old session and begins another.

An incremental answer leaves out what the leader has told before. So a partition whose answer was
dropped, or that has another leadership now, is *renewed*: one question forgets it and the next asks
for it again, and then the leader tells all of it again.

Pure; the answering side is `broker.replica.fetch_session`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from broker.replica.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from kafka_protocol.errors import ErrorCode

PartitionId = tuple[bytes, int]
"""Topic id and partition."""


class Asked(NamedTuple):
    """What is asked of one partition.

    Attributes:
        leader_epoch: the leadership that is meant.
        offset: the own log end (exclusive).
        last_fetched_epoch: of the last own record; -1 without one.
        log_start_offset: where the own log begins, checkpointed.
        high_watermark: the own one.
    """

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    high_watermark: int


class Question(NamedTuple):
    """One Fetch.

    Attributes:
        epoch: of the session; 0: a full question, which begins one.
        asked: partitions that are new to the leader, or asked otherwise than before.
        forgotten: partitions that the leader is to leave out from now on.
        is_hurried: it has partitions that were not asked for before, or is to be followed by one
            that has: the leader should tell what it knows of them, and not wait for records.
    """

    session_id: int
    epoch: int
    asked: Mapping[PartitionId, Asked]
    forgotten: tuple[PartitionId, ...] = ()
    is_hurried: bool = False

    @property
    def is_full(self) -> bool:
        """Whether each partition must be answered."""
        return self.epoch == INITIAL_EPOCH


class FetchSession:
    """See the module.

    Attributes:
        last_sent: what the last question asks of each partition, by itself or those before it.
    """

    def __init__(self) -> None:
        self.last_sent: dict[PartitionId, Asked] = {}
        self._wanted: dict[PartitionId, Asked] = {}
        self._changed: dict[PartitionId, None] = {}  # a set in order: runs are replayed
        self._renewed: set[PartitionId] = set()
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH

    # -- what is wanted

    def ask(self, partition: PartitionId, asked: Asked) -> None:
        """Ask this of a partition from the next question on."""
        last_sent = self.last_sent.get(partition)
        if last_sent is not None and last_sent.leader_epoch != asked.leader_epoch:
            self._renewed.add(partition)
        self._wanted[partition] = asked
        self._changed[partition] = None

    def forget(self, partition: PartitionId) -> None:
        """Ask for it no more."""
        if self._wanted.pop(partition, None) is not None:
            self._changed[partition] = None

    def renew(self, partition: PartitionId) -> None:
        """Have the leader tell all of a partition again: what it told last was not taken."""
        if partition in self._wanted:
            self._renewed.add(partition)
            self._changed[partition] = None

    # -- questions and answers

    def question(self) -> Question | None:
        """The next question; it counts as sent. None: there is nothing to ask."""
        if self._epoch == INITIAL_EPOCH:
            self._changed.clear()
            self._renewed.clear()
            before, self.last_sent = self.last_sent, dict(self._wanted)
            if not self.last_sent:
                return None
            hurries = not self.last_sent.keys() <= before.keys()
            return Question(self._session_id, self._epoch, self.last_sent, is_hurried=hurries)
        asked: dict[PartitionId, Asked] = {}
        forgotten: list[PartitionId] = []
        again: dict[PartitionId, None] = {}
        has_new = False
        for partition in self._changed:
            wanted, last_sent = self._wanted.get(partition), self.last_sent.get(partition)
            if last_sent is not None and (wanted is None or partition in self._renewed):
                forgotten.append(partition)
                del self.last_sent[partition]
                if wanted is not None:
                    again[partition] = None
            elif wanted is not None and wanted != last_sent:
                has_new |= last_sent is None
                asked[partition] = self.last_sent[partition] = wanted
        self._changed = again
        self._renewed.clear()
        if not self.last_sent and not forgotten:
            return None
        hurries = has_new or bool(again)
        return Question(self._session_id, self._epoch, asked, tuple(forgotten), hurries)

    def answered(self, error: int, session_id: int) -> bool:
        """Take what the last question's answer says of the session.

        Args:
            error: of the whole answer.
            session_id: in the answer.

        Returns:
            Whether the partitions in it count.
        """
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        elif error == ErrorCode.NONE:
            if session_id == NO_SESSION or self._epoch == INITIAL_EPOCH:
                self._session_id = session_id
            if session_id == self._session_id:
                begins = session_id != NO_SESSION
                self._epoch = next_epoch(self._epoch) if begins else INITIAL_EPOCH
                return True
        self.lost()
        return False

    def lost(self) -> None:
        """The last question has no answer, or a wrong one: begin another session."""
        self._epoch = INITIAL_EPOCH
