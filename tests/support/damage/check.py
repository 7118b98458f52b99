"""What a broker makes of a damaged directory, seen from outside only."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import has_valid_crc, read_header
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import batch
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, fetch_fields, produce_fields
from tests.support.brokers.traffic import Lane
from tests.support.damage.copies import Case, Damaged
from tests.support.damage.impossible import INAPPLICABLE
from tests.support.damage.life import ABORTED, LANES, hole_of, log_start, record_of
from tests.support.damage.table import (
    EARLIER,
    EXIT,
    OFFLINE,
    WHOLE,
    Allowed,
    Damage,
    Outcome,
)

REFUSALS = {
    int(ErrorCode.KAFKA_STORAGE_ERROR),
    int(ErrorCode.REPLICA_NOT_AVAILABLE),
    int(ErrorCode.CORRUPT_MESSAGE),
}
WRONG_CHECKSUM, ANOTHER_RECORD = "a batch with a wrong checksum", "another record"
NOT_ABORTED = "an aborted record comes as committed"
TIER_WAIT_S = 8.0
NAMED_WITHIN_S = 10.0
_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass
class Findings:
    """What one start did.

    Attributes:
        exit_code: None: it serves.
        said: the end of its log.
        outcomes: of each partition, with a text for a person.
        wrong: what must never be.
        last: the last batch of each partition that was read whole.
    """

    exit_code: int | None = None
    said: str = ""
    outcomes: dict[Lane, tuple[Outcome | None, str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    last: dict[Lane, bytes] = field(default_factory=dict)


def look(damaged: Damaged) -> Findings:
    """Start the broker on what is left and ask about every partition."""
    broker, found = damaged.broker, Findings()
    before, remote_before = _log_bytes(damaged, torn_tails=False), _remote_objects(damaged)
    try:
        broker.start(wait=False)
        process = broker.process
        assert process is not None
        until(
            lambda: process.poll() is not None or broker.http("/ready")[0] == 200,
            "the broker is ready or ends",
        )
        found.exit_code = process.poll()
        if found.exit_code is None:
            _ask(damaged, found)
    finally:
        broker.close()
        found.said = broker.log_tail(40)
    for name, size in (before - _log_bytes(damaged, torn_tails=True)).items():
        found.wrong.append(f"{damaged.of(name)}: {name}: {size} bytes of segments were deleted")
    for name in sorted(remote_before - _remote_objects(damaged)):
        found.wrong.append(f"the remote object {name} was deleted")
    return found


def validate(damaged: Damaged, found: Findings) -> list[str]:
    """Compare with the table; empty: all is as it may be."""
    complaints = found.wrong + unlisted(damaged)
    if found.exit_code is not None:
        return complaints + _validate_exit(damaged, found)
    met = {lane: [case for case in damaged.cases if lane in case.lanes] for lane in LANES}
    merged: Counter[str] = Counter()
    refuted: dict[str, list[str]] = {}
    for lane, (outcome, text) in found.outcomes.items():
        permitted, why = _permitted(met[lane])
        if outcome not in permitted:
            wanted = " or ".join(sorted(one.value for one in permitted))
            what = f"{why}: must be {wanted}, but {text or 'is ' + str(outcome and outcome.value)}"
            refuted.setdefault(what, []).append(f"{lane[0]}-{lane[1]}")
        merged[outcome.value if outcome else "wrong"] += 1
    for what, names in refuted.items():
        complaints.append(f"{what}: {len(names)} partitions: {', '.join(names[:3])}")
    print(", ".join(f"{count} {name}" for name, count in sorted(merged.items())))
    return complaints


def unlisted(damaged: Damaged) -> list[str]:
    """Damages that changed nothing, where the table does not say so."""
    return [
        f"{row.kind}, {damage.value}: not applied, and not listed as inapplicable"
        for row, damage in damaged.inapplicable
        if damage not in INAPPLICABLE.get(row.kind, ())
        and not any((one.row.kind, one.damage) == (row.kind, damage) for one in damaged.cases)
    ]


def _permitted(met: list[Case]) -> tuple[Allowed, str]:
    """What may become of a partition that met these damages, and their names."""
    if not met:
        return frozenset({WHOLE}), "undamaged"
    names = str(met[0]) if len(met) == 1 else f"{met[0]} and {len(met) - 1} more"
    return frozenset().union(*(case.allowed for case in met)), names


def _validate_exit(damaged: Damaged, found: Findings) -> list[str]:
    """Nothing else may be damaged in a start that ends: it would not have been met."""
    cases = damaged.cases
    others = [
        str(case)
        for case in cases
        if EXIT not in case.allowed or case.row.kind != cases[0].row.kind
    ]
    if not cases or others or found.exit_code != 1:
        last = found.said.strip().splitlines()[-1:]
        return [f"{[str(one) for one in cases]}: exit {found.exit_code}, beside {others}: {last}"]
    named = [case for case in cases if _is_named(case, damaged, found.said)]
    return [] if named else [f"{cases[0]}: exit 1 without naming the file: {found.said[-300:]}"]


def _is_named(case: Case, damaged: Damaged, said: str) -> bool:
    path = damaged.broker.directory / case.path
    is_gone = case.damage is Damage.LOST  # its directory tells enough
    names_parent = re.search(rf"{re.escape(str(path.parent))}(?![\w-])", said)
    return str(path) in said or (is_gone and names_parent is not None)


# ------------------------------------------------------------------ asking


def _ask(damaged: Damaged, found: Findings) -> None:
    broker = damaged.broker
    with RawClient(broker) as client:
        _wait_for_tier(client)
        lows, highs = _offsets(client, -2), _offsets(client, -1)
        for lane in LANES:
            reader = _Reader(client, lane, damaged.base.end)
            found.outcomes[lane] = reader.outcome(lows[lane], highs[lane])
            found.last[lane] = reader.last
        _check_named(damaged, found)
        for lane, (one, _) in found.outcomes.items():
            if one in (WHOLE, EARLIER):
                found.wrong += _written(client, lane, found.last[lane], damaged.base.end)


def _written(client: RawClient, lane: Lane, last: bytes, end: int) -> list[str]:
    """A producer's batch that comes again is known, and a new one gets the next offset."""
    wrong = []
    due_again = read_header(last, 0).base_offset
    for data, due, known in (
        (bytes(8) + last[8:], due_again, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (batch(b"after the damage"), end, ErrorCode.NONE),
    ):
        sent = produce_fields(lane[0], data, index=lane[1])
        [done] = client.ask(ApiKey.PRODUCE, 7, sent).responses[0].partition_responses
        if (done.error_code, done.base_offset) != (0, due) and done.error_code != (known or -1):
            found = f"code {done.error_code}, offset {done.base_offset}"
            wrong.append(f"{lane}: produced: {found} where {due} is due")
    return wrong


def _wait_for_tier(client: RawClient) -> None:
    """Until nothing is "not available" (9); what still is after a while counts as refused."""

    def is_available() -> bool:
        for lane, (code, low) in _offsets(client, -2).items():
            waits = code or _fetch(client, lane, low).error_code
            if waits == ErrorCode.REPLICA_NOT_AVAILABLE:
                return False
        return True

    with suppress(AssertionError):
        until(is_available, "the tier answers", deadline_s=TIER_WAIT_S)


def _check_named(damaged: Damaged, found: Findings) -> None:
    """Each refused partition is named by the health page, or its directory is."""
    refused = [lane for lane, (one, _) in found.outcomes.items() if one is OFFLINE]

    def nameless() -> list[Lane]:
        page = damaged.broker.http("/health")[1]
        return [
            lane
            for lane in refused
            if not re.search(rf"\b{lane[0]}-{lane[1]}\b", page)
            and f"{damaged.broker.log_directories[damaged.home[lane]]} " not in page
        ]

    try:
        until(lambda: not nameless(), "health names all", deadline_s=NAMED_WITHIN_S)
    except AssertionError:
        for lane in nameless():
            text = found.outcomes[lane][1]
            found.outcomes[lane] = (None, f"/health does not name it ({text})")


def _offsets(client: RawClient, time: int) -> dict[Lane, tuple[int, int]]:
    """Error code and offset of every partition."""
    numbers: dict[str, list[int]] = {}
    for topic, number in LANES:
        numbers.setdefault(topic, []).append(number)
    asked = [
        {"name": topic, "partitions": [{"partition_index": n, "timestamp": time} for n in wanted]}
        for topic, wanted in numbers.items()
    ]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": asked}
    return {
        (topic.name, one.partition_index): (one.error_code, one.offset)
        for topic in client.ask(ApiKey.LIST_OFFSETS, 2, fields).topics
        for one in topic.partitions
    }


@dataclass
class _Reader:
    """A consumer of one partition that reads what is committed.

    Attributes:
        end: where the partition must end.
        last: the last batch it got.
    """

    client: RawClient
    lane: Lane
    end: int
    last: bytes = b""

    def outcome(self, low: tuple[int, int], high: tuple[int, int]) -> tuple[Outcome | None, str]:
        """What became of the partition, with a text for a person.

        Args:
            low: error code and offset of its begin, as the broker says.
            high: the same of its end.
        """
        for code, _ in (low, high):
            if code in REFUSALS:
                return OFFLINE, f"error {code}"
            if code:
                return None, f"error {code}"
        first = log_start(self.lane)
        if high[1] != self.end:
            return None, f"ends at {high[1]}, not {self.end}"
        if low[1] > first:
            return None, f"begins at {low[1]}, not {first}"
        code, text = self._read(low[1])
        if code in REFUSALS:
            return OFFLINE, text
        if text.startswith(WRONG_CHECKSUM):
            return Outcome.CHECKSUM, text
        if text.startswith((ANOTHER_RECORD, NOT_ABORTED)):
            return Outcome.UNTOLD, text
        if text:
            return None, text
        return (WHOLE, "") if low[1] == first else (EARLIER, "")

    def _read(self, first: int) -> tuple[int, str]:
        """Compare every record from `first` on; error code and complaint, (0, ""): all is well."""
        position, empty = first, 0
        while position < self.end:
            part = _fetch(self.client, self.lane, position)
            if part.error_code:
                return part.error_code, f"error {part.error_code} at offset {position}"
            data = bytes(part.records or b"")
            empty = 0 if data else empty + 1
            if empty > 10:
                return 0, f"nothing comes at offset {position}"
            aborted = {one.producer_id for one in part.aborted_transactions or ()}
            for at, header in _batches(data):
                self.last = data[at : at + header.size_bytes]
                if not has_valid_crc(data, at, header):
                    return 0, f"{WRONG_CHECKSUM} at offset {header.base_offset}"
                if header.is_transactional and header.producer_id not in aborted:
                    return 0, f"{NOT_ABORTED} at offset {header.base_offset}"
                position, complaint = self._compare(data, at, position)
                if complaint:
                    return 0, complaint
        return 0, ""

    def _compare(self, data: bytes, at: int, position: int) -> tuple[int, str]:
        """Records of one batch; the next position, and a complaint."""
        is_control, hole = read_header(data, at).is_control, hole_of(self.lane)
        for record in iter_records(data, at):
            if record.offset < position:
                continue
            if position in hole and record.offset >= hole.stop:
                position = hole.stop
            if record.offset != position:
                return position, f"offset {record.offset} where {position} is due"
            is_marker = is_control and any(position == one.stop for one in ABORTED)
            if not is_marker and (record.key, record.value) != record_of(self.lane, position):
                return position, f"{ANOTHER_RECORD} at offset {position}: {record.value!r:.60}"
            position += 1
        return position, ""


def _fetch(client: RawClient, lane: Lane, offset: int) -> Any:
    fields = fetch_fields(lane[0], offset, partition=lane[1])
    fields |= {"max_wait_ms": 1_000, "isolation_level": 1}
    return client.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]


def _batches(data: bytes) -> list[tuple[int, Any]]:
    found, position = [], 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        if position + header.size_bytes > len(data):
            break
        found.append((position, header))
        position += header.size_bytes
    return found


# ------------------------------------------------------------------ counting what is kept


def _log_bytes(damaged: Damaged, *, torn_tails: bool) -> Counter[str]:
    """Bytes of segments by partition, those set aside included, those about to be deleted not.

    Args:
        damaged: whose log directories.
        torn_tails: whether a last batch that is cut counts: it may be cut off in place.
    """
    total: Counter[str] = Counter()
    for log in damaged.broker.log_directories:
        for path in log.rglob("*.log*") if log.is_dir() else ():
            place = path.parent.name
            if not _SEGMENT.search(path.name) or not path.is_file():
                continue
            if path.name.endswith(".deleted") or place.endswith("-delete"):
                continue
            data = path.read_bytes()
            total[place.split(".")[0]] += len(data) if torn_tails else whole_batches_bytes(data)
    return total


def _remote_objects(damaged: Damaged) -> set[str]:
    store = damaged.broker.remote_directory
    return {str(path.relative_to(store)) for path in store.rglob("*.log")}


def whole_batches_bytes(data: bytes) -> int:
    """Where the last whole batch of a segment ends."""
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data) or end <= position + 12:
            break
        position = end
    return position
