"""Metrics, read back with Prometheus' own parser; log lines."""

import logging
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.log_context import Outage, bind, escape
from runtime.metrics import PIECE_ROWS, WINDOW_MS, Labelled, Recent, Registry, Sample
from tests.support.sim.clock import ManualClock


def _parsed(registry: Registry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(registry.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_page_is_read_by_prometheus():
    registry = Registry()
    requests = registry.counter("requests_total", "Requests\nserved", ["api"])
    requests.inc(2, "Produce")
    requests.labels("Fetch").inc()
    registry.gauge("temperature", "C").set(-2.5)
    registry.gauge("size", "bytes", ["topic"], lambda: {('we"ird\\\n',): 7})
    registry.gauge("one", "asked", fn=lambda: 1)
    latency = registry.histogram("latency_ms", "time", buckets=(1, 10))
    for value in (0.5, 1, 5, 50):
        latency.observe(value)
    assert _parsed(registry) == {
        ("requests_total", (("api", "Produce"),)): 2,
        ("requests_total", (("api", "Fetch"),)): 1,
        ("temperature", ()): -2.5,
        ("size", (("topic", 'we"ird\\\n'),)): 7,
        ("one", ()): 1,
        ("latency_ms_bucket", (("le", "1"),)): 2,
        ("latency_ms_bucket", (("le", "10"),)): 3,
        ("latency_ms_bucket", (("le", "+Inf"),)): 4,
        ("latency_ms_sum", ()): 56.5,
        ("latency_ms_count", ()): 4,
    }


def test_asking_twice_for_a_metric_gives_the_same_one():
    registry = Registry()
    assert registry.counter("a", "h", ["x"]) is registry.counter("a", "h", ["x"])
    with pytest.raises(ValueError, match="another type"):
        registry.gauge("a", "h")
    with pytest.raises(ValueError, match="labels"):
        registry.counter("a", "h", ["x"]).inc(1, "one", "two")


def _rendered_at_once(registry: Registry) -> str:
    """The page as versions before pieces made it: from samples, by family."""
    families: dict[str, list[Sample]] = {}
    for sample in registry.samples():
        cut = sample.name.rsplit("_", 1)[0] if sample.type == "histogram" else sample.name
        families.setdefault(cut, []).append(sample)
    lines = []
    for name, members in families.items():
        help_text = members[0].help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {members[0].type}"]
        for sample in members:
            texts = {
                key: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
                for key, text in sample.labels.items()
            }
            pairs = ",".join(f'{key}="{text}"' for key, text in texts.items())
            value = int(sample.value) if sample.value == int(sample.value) else sample.value
            lines.append(f"{sample.name}{{{pairs}}} {value}" if pairs else f"{sample.name} {value}")
    return "".join(f"{line}\n" for line in lines)


def _large_registry(topics: int) -> Registry:
    registry = Registry()
    registry.counter("never_total", "nobody\ncounted", ["topic"])
    counter = registry.counter("counted_total", "back\\slash", ["topic", "kind"])
    times = registry.histogram("took_ms", "time", ["topic"], buckets=(0.5, 10))
    for number in range(topics):
        counter.inc(number / 4, f"t{number}", 'a "kind"\n\\')
        times.observe(number, f"t{number}")
    registry.gauge("set", "by hand", ["topic"]).set(7, "t")
    registry.gauge("asked", "a mapping", ["topic"], lambda: {("a",): 1.5, ("b",): -2})
    registry.gauge("walked", "an iterator", ["n"], lambda: (((str(n),), n) for n in range(topics)))
    return registry


def test_pieces_are_the_page_that_was_made_at_once_before():
    registry = _large_registry(400)
    assert b"".join(registry.pieces()).decode() == _rendered_at_once(registry)


def test_no_piece_is_larger_than_a_slice_of_work():
    pieces = list(_large_registry(2_000).pieces())
    heads = 5 * 2
    assert max(piece.count(b"\n") for piece in pieces) <= PIECE_ROWS + heads
    assert len(pieces) >= 2_000 * 7 / PIECE_ROWS


def test_a_long_walk_without_values_is_interrupted_too():
    registry, walked = Registry(), list[int]()

    def walk() -> Iterator[Labelled | None]:
        for number in range(3):
            walked.append(number)
            yield None
        yield (), 3

    registry.gauge("walked", "h", fn=walk)
    pieces = registry.pieces()
    assert (next(pieces), walked) == (b"", [0])
    assert b"".join(pieces) == b"# HELP walked h\n# TYPE walked gauge\nwalked 3\n"
    assert [sample.value for sample in registry.samples()] == [3]


def test_forgotten_labels_are_gone():
    registry = Registry()
    counter = registry.counter("a", "h", ["topic"])
    counter.inc(1, "t")
    counter.remove("t")
    assert (registry.samples(), counter.value("t")) == ([], 0)


def test_the_total_of_a_counter_never_falls():
    counter = Registry().counter("bytes_total", "h", ["topic"])
    counter.inc(5, "a")
    counter.inc(7, "b")
    assert counter.total() == 12
    counter.remove("a")
    counter.remove("never-seen")
    assert counter.total() == 12
    counter.inc(1, "a")
    assert (counter.value("a"), counter.total()) == (1, 13)


def test_a_metric_is_found_by_its_name():
    registry = Registry()
    counter = registry.counter("bytes_total", "h")
    assert registry.get("bytes_total") is counter
    assert registry.get("other") is None


def test_outside_text_cannot_forge_a_log_line():
    assert escape("a\nb\x1b[0m") == "a\\nb\\x1b[0m"
    assert escape(b"\xff\xfea") == "\\\\xff\\\\xfea"
    assert escape("x" * 300, 10) == "x" * 10 + "..."


def test_prefix_stands_before_each_line(caplog):
    log = bind(logging.getLogger("t"), "orders-3 100%")
    log.warning("rolled: base=%d", 7)
    assert caplog.messages == ["[orders-3 100%] rolled: base=7"]


def test_prefix_with_percent_and_no_arguments(caplog):
    bind(logging.getLogger("t"), "50%").warning("plain")
    assert caplog.messages == ["[50%] plain"]


def test_outage_is_logged_once_and_its_end_once(caplog):
    outage = Outage(logging.getLogger("t"), "store")
    for _ in range(3):
        outage.failed("no route")
    assert len(caplog.messages) == 1
    outage.succeeded()
    outage.succeeded()
    assert len(caplog.messages) == 2
    assert "failed_attempts=3" in caplog.messages[1]


def test_the_average_and_the_longest_of_what_happened_lately() -> None:
    clock = ManualClock()
    recent = Recent(clock)
    assert (recent.average, recent.longest) == (0, 0)
    recent.note(10)
    recent.note(30)
    assert (recent.average, recent.longest) == (20, 30)
    clock.advance(WINDOW_MS // 2)
    recent.note(5)
    assert (recent.average, recent.longest) == (15, 30)
    clock.advance(WINDOW_MS // 2)
    assert (recent.average, recent.longest) == (5, 5)
    clock.advance(WINDOW_MS)
    assert (recent.average, recent.longest) == (0, 0)


def test_the_part_of_the_time_in_which_nothing_was_done() -> None:
    clock = ManualClock()
    recent = Recent(clock)
    assert recent.idle_ratio == 1
    clock.advance(1_000)
    recent.note(250)
    assert recent.idle_ratio == 0.75
    clock.advance(1_000)
    assert recent.idle_ratio == 0.875
    clock.advance(WINDOW_MS)
    assert recent.idle_ratio == 1, "it is long ago"
    recent.note(10 * WINDOW_MS)
    assert recent.idle_ratio == 0
