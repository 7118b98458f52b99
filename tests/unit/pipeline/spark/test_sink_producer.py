"""Producing without a broker: what a user is told."""

import pytest

from pipeline.spark.sink_options import sink_settings
from pipeline.spark.sink_producer import DeliveryError, produce
from pipeline.spark.sink_rows import Record


@pytest.mark.parametrize(("partition", "where"), [(-1, "orders"), (0, "orders-0")])
def test_brokers_that_are_away_are_one_line(partition: int, where: str) -> None:
    settings = sink_settings(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.delivery.timeout.ms": "100"}
    )
    with pytest.raises(DeliveryError) as refused:
        produce([Record("orders", partition, None, b"v", None)] * 3, settings)
    assert str(refused.value).startswith(f"a record was not written to {where}: ")
    assert str(refused.value).endswith("(and 2 more)")
