"""`docs/metrics.md` has all metrics of a node, as they are registered."""

import re
from collections.abc import Callable

from tests.support.brokers.process import ROOT, BrokerProcess, until
from tests.support.described import metrics

PAGE = ROOT / "docs/metrics.md"


def test_the_page_of_metrics_is_fresh() -> None:
    assert PAGE.read_text() == metrics.render(), "stale: run `make docs`"


def test_the_page_has_every_metric_that_a_node_shows(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    node = make_broker(tiered=True).start()
    page = until(
        lambda: (
            page if "tidemark_remote_abandoned_calls" in (page := node.http("/metrics")[1]) else ""
        ),
        "the tier's values",
    )
    shown = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert shown <= set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
