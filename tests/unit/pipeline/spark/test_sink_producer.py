"""Producing without a broker: what a user is told."""

import pytest

from pipeline.errors import OptionError
from pipeline.spark.sink_options import sink_settings
from pipeline.spark.sink_producer import DeliveryError, check_client, produce
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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("compresion.type", "hush-hush", "no such property; did you mean kafka.compression.type?"),
        ("nothing.like.it", "hush-hush", "kafka.nothing.like.it: .* has no such property"),
        ("compression.type", "hush-hush", "cannot be used .*compression.codec"),
        ("linger.ms", "999999999", "outside allowed range"),
    ],
)
def test_a_setting_that_the_client_refuses_is_an_error_on_the_driver(
    name: str, value: str, said: str
) -> None:
    settings = sink_settings({"kafka.bootstrap.servers": "h:1", f"kafka.{name}": value})
    with pytest.raises(OptionError, match=said) as refused:
        check_client(settings)
    assert "hush" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_only_executors_have_are_not_looked_for() -> None:
    check_client(
        sink_settings({"kafka.bootstrap.servers": "h:1", "kafka.ssl.ca.location": "/nowhere"})
    )
