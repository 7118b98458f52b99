"""The validate of the soak sees leaks, and only leaks.

Its reader of logs knows the store's errors.
"""

from pathlib import Path
from random import Random

import pytest

from benchmarks.soak_parts.report import LINE_BYTES_MAX, Log, findings_of_load, last_words
from benchmarks.soak_parts.store import COUNTS, SAYS
from benchmarks.soak_parts.validator import Series, verdict

MINUTES = (2, 10, 60)


AT = "[2026-11-24 20:00:00,000+00:00]"


def memory(minutes: float, leaked: float, seed: int = 1) -> Series:
    """Fills a cache in the warm-up, is noisy, and grows by `leaked` MiB in what is validated."""
    rng = Random(seed)
    samples = []
    for n in range(int(minutes * 24)):
        at, end = n * 2.5, minutes * 60
        filling = min(1.0, at / (end / 4)) * 80
        spike = 60 if rng.random() < 0.15 else 0
        samples.append(
            (at, 50 + filling + spike + rng.uniform(-3, 3) + leaked * at / (end * 2 / 3))
        )
    return Series("memory", "MiB", 16, samples)


@pytest.mark.parametrize("minutes", MINUTES)
@pytest.mark.parametrize("seed", range(5))
def test_what_fills_in_the_warm_up_and_is_noisy_is_flat(minutes: int, seed: int) -> None:
    validated = verdict(memory(minutes, leaked=2, seed=seed))
    assert validated.finding == ""
    assert abs(validated.growth) < 10


@pytest.mark.parametrize("minutes", MINUTES)
@pytest.mark.parametrize("seed", range(5))
def test_a_leak_above_the_allowance_is_found_however_long_the_run(minutes: int, seed: int) -> None:
    validated = verdict(memory(minutes, leaked=25, seed=seed))
    assert "memory grew by" in validated.finding
    assert 18 < validated.growth < 32


TIMES_S = (45, 50, 53, 62, 65, 74, 80, 84, 90, 93, 95, 98, 101, 104, 107, 110, 113, 115, 118)
LINES = (
    988,
    1012,
    1063,
    1061,
    863,
    963,
    983,
    1051,
    863,
    1052,
    883,
    1068,
    1129,
    923,
    *[1075] * 4,
    929,
)
"""Of a metrics page, recorded on a busy machine: each topic that is there has some of its own."""


def test_what_sways_with_the_load_of_two_minutes_is_no_finding() -> None:
    validated = verdict(Series("lines", "", 60, [(0, 563), *zip(TIMES_S, LINES, strict=True)]))
    assert validated.growth > 60
    assert validated.least < 0
    assert validated.finding == ""


def test_what_shrinks_is_no_finding() -> None:
    assert verdict(memory(10, leaked=-40)).finding == ""


def test_too_few_samples_are_a_finding_and_not_a_pass() -> None:
    validated = verdict(Series("threads", "", 2, [(0, 1), (60, 1), (120, 1)]))
    assert "too few" in validated.finding
    assert verdict(Series("CPU", "%", None, [])).finding == ""


def test_errors_of_the_soaks_store_are_expected_and_all_others_are_not(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    counts = COUNTS % (500, 20, 9, 1)
    told = f"{AT} INFO tier: {counts} (benchmarks.soak_parts.store)\n"
    failed = f"{AT} ERROR copying fails: {SAYS} (rlm.telemetry)\n"
    log.write_text(failed + told)
    assert Log(log).findings() == []
    assert Log(log).store == {"calls": 500, "failed": 20, "late": 9, "outages": 1}
    log.write_text(failed)
    assert Log(log).findings() == ["the store never failed"]
    log.write_text(
        f"{AT} ERROR something else (broker)\n"
        f"{AT} ERROR tier: of it (rlm.reader)\n"
        "Traceback (most recent call last):\n"
        f"{AT} WARNING closed connection: peer=a:1 reason=idle (broker)\n"
    )
    found = Log(log).findings()
    assert found[0] == "1 tracebacks in the log"
    assert found[1].startswith("2 ERROR lines in the log: ")
    assert "something else" in found[1]


def test_the_last_words_of_clients_are_their_last_whole_line(tmp_path: Path) -> None:
    words = tmp_path / "clients.jsonl"
    words.write_text("")
    assert last_words(words) == {}
    words.write_text('{"counts": {"a": 1}}\n{"counts": {"a": 2}}\n{"counts": {"a": 3}')
    assert last_words(words) == {"counts": {"a": 2}}
    words.write_text("x" * LINE_BYTES_MAX + '\n{"counts": {"a": 4}}\n')
    assert last_words(words) == {"counts": {"a": 4}}


def test_clients_that_did_nothing_prove_nothing() -> None:
    assert "the clients did not come to their end" in findings_of_load({}, 0)
    found = findings_of_load({"counts": {"complaints": 1}, "wrong": ["a record is lost"]}, 1)
    assert found[0] == "the clients' process ended with 1"
    assert "a record is lost" in found[1]
    assert "nothing came of: lanes compared" in found
