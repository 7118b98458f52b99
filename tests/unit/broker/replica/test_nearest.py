"""Consumers that were sent to another replica, and come back."""

from broker.replica.nearest import BACK_WITHIN_MS, REMEMBERED_MAX, STAYS_MS, Reader, SentElsewhere


def reader(number: int, partition: int = 0) -> Reader:
    return ("h", number), bytes(16), partition


def test_each_consumer_and_partition_counts_for_itself() -> None:
    sent = SentElsewhere()
    assert sent.may_send(reader(1), 5, 0)
    assert sent.may_send(reader(1), 5, 0), "it was not told yet"
    sent.sent(reader(1), 5, 0)
    assert sent.may_send(reader(2), 5, 1)
    assert sent.may_send(reader(1, 1), 5, 1)
    assert not sent.may_send(reader(1), 5, 2)


def test_it_remembers_no_longer_and_no_more_than_it_must() -> None:
    sent = SentElsewhere()
    for number in range(REMEMBERED_MAX + 1):
        sent.sent(reader(number), 5, 0)
    assert len(sent) == REMEMBERED_MAX
    assert sent.may_send(reader(0), 5, 1), "the first one was forgotten"
    assert not sent.may_send(reader(2), 5, 1)
    later = BACK_WITHIN_MS + STAYS_MS + 2
    sent.sent(reader(2), 5, later)
    assert len(sent) == 1
