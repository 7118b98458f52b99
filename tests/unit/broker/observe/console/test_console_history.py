"""Five minutes of totals, and the rates between them."""

from broker.observe.console.history import NAMES, SAMPLES, History


def test_a_rate_is_per_second_of_the_time_that_passed() -> None:
    history = History()
    for at_ms, total in ((0, 100), (5_000, 600), (15_000, 600), (25_000, 1_600)):
        history.add(at_ms, {"bytes_in": total})
    assert history.rates()["bytes_in"] == [100, 0, 100]
    assert history.total("bytes_in") == 1_600


def test_a_total_that_falls_or_is_not_known_makes_a_gap() -> None:
    history = History()
    for n, totals in enumerate(({"bytes_in": 500}, {"bytes_in": 10}, {}, {"bytes_in": 20})):
        history.add(n * 5_000, totals)
    history.add(20_000, {"bytes_in": 30})
    assert history.rates()["bytes_in"] == [None, None, None, 2]


def test_samples_of_one_moment_make_no_rate() -> None:
    history = History()
    history.add(5_000, {"bytes_in": 1})
    history.add(5_000, {"bytes_in": 2})
    assert history.rates()["bytes_in"] == [None]


def test_it_keeps_five_minutes_of_twenty_numbers() -> None:
    history = History()
    assert history.rates() == {name: [] for name in NAMES}
    assert history.total("bytes_in") is None
    for n in range(10 * SAMPLES):
        history.add(n * 5_000, dict.fromkeys(NAMES, n))
    rates = history.rates()
    assert len(rates) <= 20
    assert {len(values) for values in rates.values()} == {59}
