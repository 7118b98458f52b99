"""Which transactional batches are of aborted transactions, and which markers are needed no more.

Pure. Batches are shown in the order of the log. A marker may go once no batch of its transaction
was met before it: then nobody needs to know any more how it ended.
"""

import heapq
from collections.abc import Iterable

from kafka_protocol.errors import InvalidRecordError
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import BatchHeader

ABORT, COMMIT = 0, 1


class Transactions:
    """Follows the transactions through one walk over a log.

    Attributes:
        kept: entries for the transaction index of what is being written: aborted transactions of
            which batches were met. Whoever writes it takes them out.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a walk.

        Args:
            aborted: all aborted transactions that touch the range, in any order.
        """
        self._coming = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    @property
    def undecided(self) -> frozenset[int]:
        """Producers with data that goes for committed, whose marker has not come."""
        return frozenset(self._committed)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, entry = heapq.heappop(self._coming)
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def data(self, header: BatchHeader) -> bool:
        """Show a data batch; says whether it is of an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker(self, header: BatchHeader, kind: int | None) -> bool:
        """Show a control batch; says whether it is needed no more.

        Args:
            header: of the batch.
            kind: of its record, None where it was emptied before.

        Raises:
            InvalidRecordError: it aborts data that no index names: these went for committed.
        """
        self._begin_up_to(header.last_offset)
        if kind is None:
            self._committed.discard(header.producer_id)  # it ended what was before it
            return True
        if kind == ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                self.kept.append(found[0])
                return False
            if found is None and header.producer_id in self._committed:
                raise InvalidRecordError(
                    f"producer {header.producer_id} aborted what is in no transaction index"
                )
            return True
        if kind == COMMIT:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        return False
