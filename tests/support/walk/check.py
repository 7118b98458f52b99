"""What clients get of every partition after a start: served right, or refused by name."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import has_valid_crc, read_header
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, fetch_fields
from tests.support.brokers.traffic import Lane, key_of, value_of
from tests.support.walk.damages import Wound, is_refusable
from tests.support.walk.oracle import History

REFUSALS = {
    int(ErrorCode.KAFKA_STORAGE_ERROR),
    int(ErrorCode.REPLICA_NOT_AVAILABLE),
    int(ErrorCode.CORRUPT_MESSAGE),
}
NOT_YET = int(ErrorCode.REPLICA_NOT_AVAILABLE)
OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
TIER_WAIT_S = 10.0
NAMED_WITHIN_S = 30.0
PASSING_WITHIN_S = 45.0
"""How long a refusal may last that ends by itself: the tier starts anew where its database rots."""
EMPTY_ANSWERS_MAX = 20
REFUSALS_MAX = 2
"""So many of one partition, then the rest waits until it is healed: each takes seconds."""


@dataclass
class Answer:
    """What one partition answers.

    Attributes:
        low, high: log start and end; -1: refused.
        refused: offset and code of each refusal.
        wrong: what must never be.
        read: records compared.
    """

    low: int = -1
    high: int = -1
    refused: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    read: int = 0


class Look:
    """Asks a broker that has just started about every partition.

    Attributes:
        answers: by partition.
        complaints: what is wrong, empty if nothing is.
    """

    def __init__(
        self,
        broker: DirectoriesBroker,
        histories: Sequence[History],
        wounds: Sequence[Wound],
        bounds: dict[Lane, list[int]],
    ) -> None:
        """`bounds`: where segments begin, ascending; reading goes on there after a refusal."""
        self._broker, self._wounds, self._bounds = broker, wounds, bounds
        self._histories = {history.lane: history for history in histories}
        self.answers: dict[Lane, Answer] = {}
        with RawClient(broker) as client:
            self._wait_for_tier(client)
            for history in histories:
                self.answers[history.lane] = self._ask(client, history)
            with suppress(AssertionError):
                until(
                    lambda: not self._ask_again(client),
                    "no undamaged partition is refused",
                    deadline_s=PASSING_WITHIN_S,
                )
            with suppress(AssertionError):
                until(
                    lambda: not self._ask_nameless(client),
                    "what is refused is named on the health page, or served by now",
                    deadline_s=NAMED_WITHIN_S,
                )
        self.complaints = [
            f"{lane[0]}-{lane[1]}: {text}; {self._of(lane)}"
            for lane, answer in self.answers.items()
            for text in answer.wrong
        ]
        self.complaints += self._check_refusals()

    @property
    def refused(self) -> set[Lane]:
        """Partitions that do not serve everything."""
        return {lane for lane, answer in self.answers.items() if answer.refused}

    def codes(self) -> Counter[str]:
        """How often each refusal came."""
        return Counter(code for one in self.answers.values() for _, code in one.refused)

    # ------------------------------------------------------------------ refusals

    def _ask_again(self, client: RawClient) -> list[Lane]:
        """Ask those that are refused and must not be; which of them still are."""
        strange = [lane for lane in self.refused if not is_refusable(self._wounds, lane)]
        for lane in strange:
            self.answers[lane] = self._ask(client, self._histories[lane])
        return [lane for lane in strange if self.answers[lane].refused]

    def _ask_nameless(self, client: RawClient) -> list[Lane]:
        """Ask those that are refused and that nobody names: they may have got well."""
        for lane in self._nameless():
            self.answers[lane] = self._ask(client, self._histories[lane])
        return self._nameless()

    def _of(self, lane: Lane) -> str:
        met = [str(wound) for wound in self._wounds if lane in wound.lanes]
        return f"after {' and '.join(met)}" if met else "undamaged"

    def _check_refusals(self) -> list[str]:
        found = [
            f"{lane[0]}-{lane[1]}: refused, but {self._of(lane)}: {self.answers[lane].refused[:3]}"
            for lane in self.refused
            if not is_refusable(self._wounds, lane)
        ]
        for lane in self._nameless():
            refused = self.answers[lane].refused[:3]
            found.append(
                f"{lane[0]}-{lane[1]}: /health does not name it ({refused}); {self._of(lane)}"
            )
        return found

    def _nameless(self) -> list[Lane]:
        page = self._broker.http("/health")[1]
        if any(f"{directory} " in page for directory in self._broker.log_directories):
            return []  # a directory is offline, perhaps with a part of the remote metadata
        return [
            lane
            for lane in self.refused
            if not re.search(rf"\b{lane[0]}-{lane[1]}\b", page)
            and any(code != "checksum" for _, code in self.answers[lane].refused)
        ]

    # ------------------------------------------------------------------ asking

    def _wait_for_tier(self, client: RawClient) -> None:
        """Until nothing is "not available" (9); what still is after a while counts as refused."""

        def is_available() -> bool:
            for lane in self._histories:
                code, low = _offset(client, lane, -2)
                if NOT_YET in (code, code or _fetch(client, lane, low).error_code):
                    return False
            return True

        with suppress(AssertionError):
            until(is_available, "the tier answers", deadline_s=TIER_WAIT_S)

    def _ask(self, client: RawClient, history: History) -> Answer:
        answer, ends = Answer(), list[int]()
        for time in (-2, -1):
            code, offset = _offset(client, history.lane, time)
            if code in REFUSALS:
                answer.refused.append((-1, str(code)))
                return answer
            if code:
                answer.wrong.append(f"ListOffsets({time}) answers error {code}")
                return answer
            ends.append(offset)
        answer.low, answer.high = ends
        self._check_ends(history, answer)
        if not answer.wrong:
            self._read(client, history, answer)
        return answer

    def _check_ends(self, history: History, answer: Answer) -> None:
        if not history.acknowledged <= answer.high <= max(history.sent, history.acknowledged):
            answer.wrong.append(
                f"ends at {answer.high}, acknowledged up to {history.acknowledged},"
                f" sent up to {history.sent}"
            )
        latest = max(history.latest_start, history.given_up_below)
        if answer.low > latest:
            answer.wrong.append(f"begins at {answer.low}, nobody asked for more than {latest}")
        is_doubted = any(
            "log starts" in str(one) or "checksums" in one.kind for one in self._wounds
        )
        if answer.low < history.seen_start and not is_doubted:
            answer.wrong.append(f"begins at {answer.low} after {history.seen_start}")

    def _read(self, client: RawClient, history: History, answer: Answer) -> None:
        """Compare every record of [low, high)."""
        lane, position, empty = history.lane, answer.low, 0
        due_from = max(history.latest_start, answer.low)
        while position < answer.high and not answer.wrong and len(answer.refused) < REFUSALS_MAX:
            part = _fetch(client, lane, position)
            if part.error_code:
                is_due = position >= due_from
                if part.error_code in REFUSALS:
                    if is_due or part.error_code == NOT_YET:
                        answer.refused.append((position, str(part.error_code)))
                elif is_due or part.error_code != OUT_OF_RANGE:
                    answer.wrong.append(f"error {part.error_code} at offset {position}")
                position = self._after(lane, position, due_from, answer.high)
                continue
            before = position
            position = self._compare(history, bytes(part.records or b""), position, answer)
            if position == before and history.may_skip(position, answer.high):
                break
            empty = empty + 1 if position == before else 0
            if empty > EMPTY_ANSWERS_MAX:
                gaps = f", given up: {history.gaps}" if history.gaps else ""
                answer.wrong.append(f"nothing comes at offset {position}{gaps}")

    def _after(self, lane: Lane, position: int, due_from: int, high: int) -> int:
        """Where the next segment may begin."""
        bounds = self._bounds.get(lane, [])
        later = bounds[bisect_right(bounds, position) :]
        following = later[0] if later else high
        return due_from if position < due_from < following else following

    def _compare(self, history: History, data: bytes, due: int, answer: Answer) -> int:
        """Compare an answer's records with what is due; returns the offset to go on with."""
        at = 0
        while at + 61 <= len(data):
            header = read_header(data, at)
            if at + header.size_bytes > len(data):
                break
            if not has_valid_crc(data, at, header):
                answer.refused.append((header.base_offset, "checksum"))
                return header.last_offset + 1
            for record in iter_records(data, at):
                if record.offset < due:
                    continue
                if record.offset != due and not history.may_skip(due, record.offset):
                    answer.wrong.append(f"offset {record.offset} where {due} is due")
                    return due
                wanted = key_of(record.offset), value_of(history.lane, record.offset)
                if (record.key, record.value) != wanted:
                    value = bytes(record.value or b"")
                    answer.wrong.append(f"another record at offset {record.offset}: {value[:60]!r}")
                    return due
                due, answer.read = record.offset + 1, answer.read + 1
            if history.may_skip(due, header.last_offset + 1):
                due = max(due, header.last_offset + 1)  # such a batch has no records
            at += header.size_bytes
        return due


def _offset(client: RawClient, lane: Lane, time: int) -> tuple[int, int]:
    """Error code and offset."""
    wanted = {"partition_index": lane[1], "timestamp": time}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": lane[0], "partitions": [wanted]}],
    }
    [found] = client.ask(ApiKey.LIST_OFFSETS, 2, fields).topics[0].partitions
    return found.error_code, found.offset


def _fetch(client: RawClient, lane: Lane, offset: int) -> Any:
    fields = fetch_fields(lane[0], offset, partition=lane[1]) | {"max_wait_ms": 1_000}
    return client.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
