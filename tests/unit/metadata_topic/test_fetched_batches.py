"""Records from a leader: the good part is kept, whatever follows it."""

import struct
from pathlib import Path

import pytest

from kafka_protocol.records.batch import HEADER_SIZE, iter_batches, write_crc
from kafka_protocol.records.control import ControlEntry, ControlType, control_batch, leader_change
from metadata_topic.quorum.log.batches import quorum_entries, value_batch
from metadata_topic.quorum.log.fetched import BATCHES_MAX, CheckedData, checked_prefix
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.work import STEP_WORK, Steps
from tests.support.samples.golden_files import GOLDEN
from tests.support.samples.protocol_golden import golden_id

VOTERS = VoterSet(
    tuple(
        Voter(ReplicaKey(number, bytes([number]) * 16), (VoterEndpoint("C", "h", 9000 + number),))
        for number in (1, 2, 3)
    )
)
LOGS = sorted((GOLDEN / "cluster-metadata").rglob("0*.log*")) + sorted(
    (GOLDEN / "cluster-metadata").rglob("*.checkpoint")
)


def batch(base_offset: int, epoch: int = 1, records: int = 1, size: int = 10) -> bytearray:
    values = [b"\1" * size] * records
    return value_batch(values, base_offset=base_offset, epoch=epoch, timestamp_ms=1)


def control(base_offset: int, *entries: ControlEntry, epoch: int = 1) -> bytearray:
    return control_batch(entries, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=1)


def offsets(checked: CheckedData) -> list[tuple[int, int, int]]:
    return [(one.base_offset, one.end_offset, one.epoch) for one in checked.batches]


@pytest.mark.parametrize("path", LOGS, ids=golden_id)
def test_what_kafka_wrote_is_sound(path: Path) -> None:
    data = path.read_bytes()
    checked = checked_prefix(data)
    assert checked.fault is None
    assert checked.data == data
    assert offsets(checked) == [
        (header.base_offset, header.next_offset, header.partition_leader_epoch)
        for _, header in iter_batches(data)
    ]


def test_kafkas_first_batch_of_a_dynamic_quorum_names_its_voters() -> None:
    (path,) = (GOLDEN / "cluster-metadata/dynamic-quorum/controller-2-early").rglob("0*0.log*")
    said = checked_prefix(path.read_bytes()).batches
    assert said[0].kraft_version == 1
    assert said[0].voters is not None
    assert said[0].voters.ids == (1, 2, 3)
    assert [one.voters.ids for one in said if one.voters] == [(1, 2, 3)] or len(said) > 1


def test_no_records_are_no_fault() -> None:
    assert checked_prefix(b"") == CheckedData()


def test_a_cut_last_batch_waits_for_the_next_fetch() -> None:
    first, second = batch(5), batch(6)
    whole = bytes(first + second)
    for size in range(len(first), len(whole)):
        checked = checked_prefix(whole[:size])
        assert (checked.data, checked.fault) == (bytes(first), None)


def test_a_cut_only_batch_is_a_fault() -> None:
    whole = bytes(batch(5))
    for size in range(1, len(whole)):
        assert checked_prefix(whole[:size]).fault == f"no whole batch in {size} bytes"


def test_any_flipped_bit_of_the_second_of_three_keeps_the_first() -> None:
    first, second, third = batch(0), batch(1), batch(2)
    outside_of_the_checksum = {*range(8), *range(12, 16)}  # offset and epoch
    for position in range(len(second)):
        for bit in range(8):
            damaged = bytearray(second)
            damaged[position] ^= 1 << bit
            checked = checked_prefix(bytes(first + damaged + third))
            kept = offsets(checked)
            assert kept[0] == (0, 1, 1)
            if position not in outside_of_the_checksum:
                # A length that reaches beyond the end looks like a cut batch.
                assert kept[1:] == []
                assert checked.data == bytes(first)
                assert checked.fault is not None or 8 <= position < 12
            elif len(kept) > 1:  # a higher epoch is for the core to validate
                assert position >= 12
                assert kept[1][2] > 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (batch(7), "offset 7 follows on 5"),
        (batch(5), "offset 5 follows on 5"),
        (batch(6, epoch=1), "epoch 1 at offset 6 follows on 2"),
        (batch(6, epoch=-1), "a batch of epoch -1 from offset 6 to 6 with 1 records"),
        (value_batch([], base_offset=6, epoch=2, timestamp_ms=1), "with 0 records"),
    ],
)
def test_a_batch_that_no_leader_writes_ends_the_walk(second: bytearray, reason: str) -> None:
    first = batch(5, epoch=2)
    checked = checked_prefix(first + second)
    assert offsets(checked) == [(5, 6, 2)]
    assert reason in str(checked.fault)
    assert f"at byte {len(first)} of {len(first) + len(second)}" in str(checked.fault)


def test_offsets_that_leave_64_bits_are_a_fault() -> None:
    for base in (-1, -(2**63), 2**63 - 1):
        data = batch(0)
        struct.pack_into(">q", data, 0, base)
        checked = checked_prefix(data)
        assert checked.batches == ()
        assert "from offset" in str(checked.fault)


def test_an_old_format_is_a_fault() -> None:
    data = batch(0)
    data[16] = 1
    assert "a batch of magic 1" in str(checked_prefix(data).fault)


def test_voters_and_level_stand_with_the_batch_that_says_them() -> None:
    start = control(0, leader_change(1, [1, 2, 3], [1, 2]), *quorum_entries(1, VOTERS))
    checked = checked_prefix(start + batch(3))
    assert checked.fault is None
    assert [(one.kraft_version, one.voters) for one in checked.batches] == [
        (1, VOTERS),
        (None, None),
    ]


def test_an_unknown_control_type_is_skipped() -> None:
    unknown = control(0, ControlEntry(77, b"whatever"), *quorum_entries(1, VOTERS))  # type: ignore[arg-type]
    checked = checked_prefix(unknown)
    assert checked.fault is None
    assert checked.batches[0].voters == VOTERS


@pytest.mark.parametrize("ids", [(1, 1), (-1, 2)])
def test_voters_that_cannot_be_are_a_fault(ids: tuple[int, int]) -> None:
    entry = quorum_entries(1, VOTERS)[1]
    value = bytearray(entry.value)
    # Version, compact count, then the first voter's id; the second's lies a whole voter further.
    voter_bytes = (len(value) - 4) // 3
    for at, number in zip((3, 3 + voter_bytes), ids, strict=True):
        struct.pack_into(">i", value, at, number)
    checked = checked_prefix(control(0, ControlEntry(ControlType.KRAFT_VOTERS, bytes(value))))
    assert checked.batches == ()
    assert "voters" in str(checked.fault)


def test_broken_control_records_under_a_right_checksum_are_a_fault() -> None:
    good = control(1, *quorum_entries(1, VOTERS))
    for position in range(HEADER_SIZE, len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0xFF
        write_crc(damaged, 0, len(damaged))
        checked = checked_prefix(batch(0) + damaged)
        assert offsets(checked)[0] == (0, 1, 1)
        if len(checked.batches) == 1:
            assert checked.fault is not None


def test_of_very_many_batches_the_first_are_taken_in_steps() -> None:
    data = b"".join(bytes(batch(offset)) for offset in range(BATCHES_MAX + 10))
    results: list[CheckedData] = []

    def whole() -> Steps[None]:
        results.append((yield from checked_prefix.steps(data)))

    assert len(list(whole())) >= BATCHES_MAX * 4 // STEP_WORK
    [checked] = results
    assert checked.fault is None
    assert offsets(checked) == [(offset, offset + 1, 1) for offset in range(BATCHES_MAX)]
    assert data.startswith(checked.data)
    assert checked_prefix(data[len(checked.data) :]).batches[0].base_offset == BATCHES_MAX
