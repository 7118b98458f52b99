"""What stays of a damaged segment, and under which offsets."""

import pytest

from local_log.recovery.salvage_policy import FoundBatch, KeptBatch, LostOffsets, Salvage, salvage

SIZE = 100


def batches(*claims: int | tuple[int, int]) -> list[FoundBatch]:
    """Batches of two offsets, one behind the other; a claim is a base offset, or with its epoch."""
    pairs = [claim if isinstance(claim, tuple) else (claim, 0) for claim in claims]
    return [
        FoundBatch(number * SIZE, SIZE, base, 2, epoch)
        for number, (base, epoch) in enumerate(pairs)
    ]


def decided(found: list[FoundBatch], *, limit: int = 1_000, end: int = 0) -> Salvage:
    size = max((one.position + one.size_bytes for one in found), default=0)
    return salvage(found, size, start=10, limit=limit, end=end)


def shown(plan: Salvage) -> list[object]:
    return [tuple(one) if isinstance(one, LostOffsets) else one.base_offset for one in plan.pieces]


def test_a_sound_segment_stays_as_it_is() -> None:
    plan = decided(batches(10, 12, 20, 22))
    assert shown(plan) == [10, 12, 20, 22]
    assert plan.damages == ()


@pytest.mark.parametrize("claimed", [-5, 0, 11, 13, 999, 1 << 40])
@pytest.mark.parametrize("number", range(5))
def test_a_base_offset_that_cannot_be_counts_where_its_batch_lies(
    claimed: int, number: int
) -> None:
    claims = [10, 12, 14, 16, 18]
    claims[number] = claimed
    plan = decided(batches(*claims), limit=20)
    assert shown(plan) == [10, 12, 14, 16, 18]
    assert [one.position for one in plan.damages] == [number * SIZE]


def test_offsets_of_bytes_that_are_no_batch_are_lost_and_no_others() -> None:
    found = batches(10, 12, 14, 16)
    del found[1]
    plan = decided(found)
    assert shown(plan) == [10, (12, 14), 14, 16]
    [damage] = plan.damages
    assert (damage.position, damage.offset) == (SIZE, 12)


def test_a_gap_without_damage_is_the_work_of_a_cleaner_and_stays() -> None:
    assert shown(decided(batches(10, 40, 42)[:])) == [10, 40, 42]


@pytest.mark.parametrize(("end", "lost"), [(20, [(14, 20)]), (14, []), (0, [])])
def test_of_a_damaged_tail_the_offsets_are_lost_that_are_known(
    end: int, lost: list[object]
) -> None:
    found = batches(10, 12)
    plan = salvage(found, 2 * SIZE + 7, start=10, limit=1_000, end=end)
    assert shown(plan) == [10, 12, *lost]
    assert plan.damages[0].position == 2 * SIZE


def test_a_sound_file_that_is_too_short_is_left_to_a_person() -> None:
    assert decided(batches(10, 12), end=20).damages == ()


def test_a_batch_without_room_is_left_out_and_named() -> None:
    plan = decided(batches(10, 500, 12), limit=14)
    assert shown(plan) == [10, 12]
    [damage] = plan.damages
    assert "no room" in damage.text


@pytest.mark.parametrize(
    ("claimed", "taken"),
    [
        ([3, 3, 9, 3, 4], [3, 3, 3, 3, 4]),
        ([9, 3, 3, 4, 4], [3, 3, 3, 4, 4]),
        ([3, 4, 1, 4, 4], [3, 4, 4, 4, 4]),
        ([3, -1, 3, 4, -1], [3, -1, 3, 4, -1]),
    ],
)
def test_a_leader_epoch_never_falls(claimed: list[int], taken: list[int]) -> None:
    plan = decided(batches(*((10 + 2 * n, epoch) for n, epoch in enumerate(claimed))))
    assert [one.epoch for one in plan.pieces if isinstance(one, KeptBatch)] == taken
    assert len(plan.damages) == sum(map(lambda a, b: a != b, claimed, taken))
