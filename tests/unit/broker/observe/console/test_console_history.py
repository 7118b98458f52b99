"""Five minutes of totals, and the rates between them."""

from broker.observe.console.history import NAMES, SAMPLES, History


def of_bytes_in(*totals: float | None) -> History:
    """A sample every 5 s; None: the total is not known then."""
    history = History()
    for n, total in enumerate(totals):
        history.add(n * 5_000, {} if total is None else {"bytes_in": total})
    return history


def test_a_rate_is_per_second_of_the_time_that_passed() -> None:
    history = History()
    for at_ms, total in ((0, 100), (5_000, 600), (15_000, 600), (25_000, 1_600)):
        history.add(at_ms, {"bytes_in": total})
    assert history.rates()["bytes_in"] == [100, 0, 100]
    assert history.increases()["bytes_in"] == 1_500


def test_a_total_that_falls_has_begun_again_at_0() -> None:
    history = of_bytes_in(500, 10, 30)
    assert history.rates()["bytes_in"] == [2, 4]
    assert history.increases()["bytes_in"] == 30


def test_a_total_that_is_not_known_makes_a_gap_and_loses_nothing() -> None:
    history = of_bytes_in(500, None, None, 590, 600)
    assert history.rates()["bytes_in"] == [None, None, 6, 2]
    assert history.increases()["bytes_in"] == 100
    assert of_bytes_in(500, None, 20).rates()["bytes_in"] == [None, 2]


def test_a_total_that_is_known_late_counts_from_0() -> None:
    """That of a tier process, which starts after its broker."""
    history = of_bytes_in(None, None, 40)
    assert history.rates()["bytes_in"] == [None, 4]
    assert history.increases()["bytes_in"] == 40


def test_what_was_counted_before_the_first_sample_is_in_no_increase() -> None:
    assert of_bytes_in(700).increases()["bytes_in"] == 0
    history = of_bytes_in(*range(0, 1_000, 10))
    assert history.increases()["bytes_in"] == 10 * (SAMPLES - 1)


def test_samples_of_one_moment_make_no_rate() -> None:
    history = History()
    history.add(5_000, {"bytes_in": 1})
    history.add(5_000, {"bytes_in": 2})
    assert history.rates()["bytes_in"] == [None]


def test_it_keeps_five_minutes_of_twenty_numbers() -> None:
    history = History()
    assert history.rates() == {name: [] for name in NAMES}
    assert history.increases() == dict.fromkeys(NAMES, 0)
    for n in range(10 * SAMPLES):
        history.add(n * 5_000, dict.fromkeys(NAMES, n))
    rates = history.rates()
    assert len(rates) <= 20
    assert {len(values) for values in rates.values()} == {59}
