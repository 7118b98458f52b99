"""Metrics, read back with Prometheus' own parser; log lines."""

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.log_context import Outage, bind, escape
from runtime.metrics import Registry


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


def test_samples_of_another_process_are_merged_and_replaced():
    tier, broker = Registry(), Registry()
    tier.counter("copied_total", "h", ["topic"]).inc(3, "t")
    broker.merge_remote([tuple(sample) for sample in tier.samples()])
    assert _parsed(broker) == {("copied_total", (("topic", "t"),)): 3}
    tier.counter("copied_total", "h", ["topic"]).inc(1, "t")
    broker.merge_remote(tier.samples())
    assert _parsed(broker) == {("copied_total", (("topic", "t"),)): 4}


def test_forgotten_labels_are_gone():
    registry = Registry()
    counter = registry.counter("a", "h", ["topic"])
    counter.inc(1, "t")
    counter.remove("t")
    assert (registry.samples(), counter.value("t")) == ([], 0)


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
    assert outage.failing
    outage.succeeded()
    outage.succeeded()
    assert len(caplog.messages) == 2
    assert "failed_attempts=3" in caplog.messages[1]
