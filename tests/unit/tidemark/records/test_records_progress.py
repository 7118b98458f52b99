from tidemark.records.progress import Ahead


def ahead(ends: dict[int, int | None], count_max: int | None = None) -> Ahead:
    made = Ahead(count_max)
    made.assigned(ends)
    return made


def test_a_partition_is_taken_up_to_its_end() -> None:
    one = ahead({0: 3, 1: 1})
    assert [one.takes(0, offset) for offset in (0, 1, 2, 3)] == [True, True, True, False]
    assert not one.is_done
    assert one.takes(1, 0)
    assert one.is_done
    assert one.taken == 4


def test_a_record_above_the_end_ends_it_if_the_last_offsets_hold_none() -> None:
    one = ahead({0: 3})
    assert one.takes(0, 1)
    assert not one.takes(0, 5)
    assert one.is_done


def test_the_log_end_ends_it_unless_new_records_are_waited_for() -> None:
    one, endless = ahead({0: 3}), ahead({0: None})
    for each in (one, endless):
        each.reached(0)
        each.reached(7)
    assert one.is_done
    assert not endless.is_done
    assert endless.takes(0, 9)


def test_enough_is_enough_in_the_middle_of_a_batch() -> None:
    one = ahead({0: None, 1: 10}, count_max=2)
    assert [one.takes(0, 0), one.takes(1, 9), one.takes(0, 1)] == [True, True, False]
    assert one.is_done
    assert one.taken == 2


def test_without_partitions_it_is_done_but_not_before_they_are_known() -> None:
    one = Ahead(None)
    assert not one.is_done
    assert not one.takes(0, 0)
    one.reached(0)
    one.assigned({})
    assert one.is_done


def test_what_was_taken_counts_after_another_assignment() -> None:
    one = ahead({0: None}, count_max=2)
    assert one.takes(0, 0)
    one.assigned(None)
    assert not one.takes(0, 1)
    one.assigned({1: None})
    assert one.takes(1, 4)
    assert one.is_done
