"""The follower's side of a Fetch session (KIP-227): requests to a leader contain changes only.

The session has the wanted request of each partition and the last one that was sent; the next
request is the difference. After a missing answer the state at the leader is unknown. Then the next
request is a full one, which ends the old session and begins another.

An incremental answer leaves out values of earlier answers. So a partition is *renewed* if its
answer was dropped or its leadership has changed. One request forgets it, and the next one adds it
again. The leader then sends all its values.

Pure; the leader's side is `broker.replica.fetch_session`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from broker.replica.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from kafka_protocol.errors import ErrorCode

PartitionId = tuple[bytes, int]
"""Topic id and partition."""


class Asked(NamedTuple):
    """The request for one partition.

    Attributes:
        leader_epoch: Of the leadership that it is for.
        offset: End of the follower's log (exclusive).
        last_fetched_epoch: Of the follower's last record; -1 without one.
        log_start_offset: Of the follower, checkpointed.
        high_watermark: Of the follower.
    """

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    high_watermark: int


class Question(NamedTuple):
    """One Fetch.

    Attributes:
        epoch: Of the session; 0: a full request, which begins one.
        asked: Partitions that are new to the leader, or whose request has changed.
        forgotten: Partitions that the leader leaves out from now on.
        is_hurried: It has partitions that are new to the leader, or the next one has: the leader
            should answer at once, and not wait for records.
    """

    session_id: int
    epoch: int
    asked: Mapping[PartitionId, Asked]
    forgotten: tuple[PartitionId, ...] = ()
    is_hurried: bool = False

    @property
    def is_full(self) -> bool:
        """True if each partition must be answered."""
        return self.epoch == INITIAL_EPOCH


class FetchSession:
    """The session with one leader.

    Attributes:
        last_sent: The request of each partition as the leader has it, after the last Fetch.
    """

    def __init__(self) -> None:
        self.last_sent: dict[PartitionId, Asked] = {}
        self._wanted: dict[PartitionId, Asked] = {}
        self._changed: dict[PartitionId, None] = {}  # an ordered set, so that runs can be replayed
        self._renewed: set[PartitionId] = set()
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH

    # -- wanted requests

    def ask(self, partition: PartitionId, asked: Asked) -> None:
        """Send this for a partition from the next Fetch on."""
        last_sent = self.last_sent.get(partition)
        if last_sent is not None and last_sent.leader_epoch != asked.leader_epoch:
            self._renewed.add(partition)
        self._wanted[partition] = asked
        self._changed[partition] = None

    def forget(self, partition: PartitionId) -> None:
        """Fetch it no more."""
        if self._wanted.pop(partition, None) is not None:
            self._changed[partition] = None

    def renew(self, partition: PartitionId) -> None:
        """Have the leader repeat all values of a partition: its last answer was not used."""
        if partition in self._wanted:
            self._renewed.add(partition)
            self._changed[partition] = None

    # -- requests and answers

    def question(self) -> Question | None:
        """Return the next Fetch, which counts as sent; None: there is nothing to fetch."""
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
        """Take the session's state from the answer to the last Fetch.

        Args:
            error: Of the whole answer.
            session_id: In the answer.

        Returns:
            True if the partitions in it count.
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
        """Begin another session: the last Fetch has no answer, or a wrong one."""
        self._epoch = INITIAL_EPOCH
