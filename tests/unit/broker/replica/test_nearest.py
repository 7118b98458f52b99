"""Consumers that were sent to another replica, and come back."""

from broker.replica.nearest import BACK_WITHIN_MS, CONSUMERS_MAX, STAYS_MS, SentElsewhere


def peer(number: int) -> tuple[str, int]:
    return "h", number


def test_each_consumer_counts_for_itself() -> None:
    sent = SentElsewhere()
    assert sent.may_send(peer(1), 5, 0)
    assert sent.may_send(peer(2), 5, 1)
    assert not sent.may_send(peer(1), 5, 2)


def test_it_remembers_no_longer_and_no_more_than_it_must() -> None:
    sent = SentElsewhere()
    for number in range(CONSUMERS_MAX + 1):
        assert sent.may_send(peer(number), 5, 0)
    assert sent.may_send(peer(0), 5, 1), "the first one was forgotten"
    assert not sent.may_send(peer(2), 5, 1)
    later = BACK_WITHIN_MS + STAYS_MS + 2
    assert sent.may_send(peer(2), 5, later)
    assert len(sent) == 1
