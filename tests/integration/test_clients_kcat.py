"""kcat, the command line client on librdkafka."""

import shutil
import subprocess

import pytest

from tests.support.brokers.process import BrokerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)"
)


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.smoke
def test_lines_come_back_as_sent(broker: BrokerProcess) -> None:
    lines = "".join(f"line {n}\n" for n in range(1_000))
    kcat(broker, "-P", "-t", "kcat", "-p", "0", "-z", "lz4", stdin=lines)
    assert kcat(broker, "-C", "-t", "kcat", "-p", "0", "-o", "beginning", "-e", "-q") == lines


def test_one_record_from_the_middle_with_key_and_header(broker: BrokerProcess) -> None:
    for n in range(3):
        kcat(
            broker, "-P", "-t", "kcat-keys", "-p", "0", "-K:", "-H", f"n={n}", stdin=f"k{n}:v{n}\n"
        )
    shown = kcat(
        broker, "-C", "-t", "kcat-keys", "-p", "0", "-o", "1", "-c", "1", "-q", "-f", "%o %k %s %h"
    )
    assert shown == "1 k1 v1 n=1"


def test_listing_names_broker_and_topic(broker: BrokerProcess) -> None:
    kcat(broker, "-P", "-t", "kcat-list", "-p", "0", stdin="x\n")
    listing = kcat(broker, "-L")
    assert f"broker {broker.node_id} at {broker.bootstrap}" in listing
    assert 'topic "kcat-list" with 1 partitions' in listing


def test_offset_by_time_is_asked_of_the_broker(broker: BrokerProcess) -> None:
    kcat(broker, "-P", "-t", "kcat-time", "-p", "0", stdin="x\n")
    assert kcat(broker, "-Q", "-t", "kcat-time:0:-1").strip() == "kcat-time [0] offset 1"
    assert kcat(broker, "-Q", "-t", "kcat-time:0:1000").strip() == "kcat-time [0] offset 0"
