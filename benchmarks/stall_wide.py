"""Work for `benchmarks.stalls`: one request, or one change, of thousands of partitions."""

import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.stall_probe import Client, produce_frame
from benchmarks.stall_scenarios import (
    DEADLINE_S,
    PARTITIONS_A_TOPIC,
    batch,
    build,
    created,
    fetch_all,
    list_offsets,
    produced,
    topics,
)
from benchmarks.stalls import PROBED, Figures, watched
from broker.observe.console.serving import STATE
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

PARK_MS = 2_000
FETCH_BYTES = 50 << 20


def wide_requests(data: Path, scale: float) -> list[Figures]:
    """Produce, parked fetches and a setting of the broker, beside 5,000 partitions in 3,000 topics.

    Also a decision that removes all of them, with a remote tier that is notified of each.
    """
    broker = watched(data, tiered=True)
    wide, narrow = topics("wide", int(2_000 * scale)), [f"n-{n}" for n in range(int(3_000 * scale))]
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, wide, PARTITIONS_A_TOPIC, remote_storage_enable="true")
        with broker.window(f"create {len(narrow)} topics"):
            created(client, narrow, 1, remote_storage_enable="true")
        places = [(name, n) for name in wide for n in range(PARTITIONS_A_TOPIC)]
        places += [(name, 0) for name in narrow]
        frame = produce_frame(dict.fromkeys(places, batch(b"x" * 100)))
        with broker.window(f"Produce of {len(places)} partitions"):
            produced(client, [frame])
        entries = int(18_000 * scale)
        with broker.window(f"Fetch of {entries} entries that parks"):
            client.ask(ApiKey.FETCH, 11, parked(wide, entries))
        with broker.window(f"Fetch of {entries} entries that is woken"):
            waking = threading.Timer(PARK_MS / 2_000, wake, (broker.bootstrap, frame))
            waking.start()
            client.ask(ApiKey.FETCH, 11, parked(wide, entries))
            waking.join()
        body = fetch_all(wide, entries)
        body.max_bytes = FETCH_BYTES
        with broker.window(f"Fetch of {entries} entries with a record each"):
            client.ask(ApiKey.FETCH, 11, body)
        with broker.window("a setting of the broker"):
            set_broker_config(client, "log.retention.ms", "86400000")
        entries = int(5_000 * scale)
        with broker.window(f"ListOffsets by time of {entries} topics"):
            body = list_offsets(wide + narrow, PARTITIONS_A_TOPIC)
            body.topics = [by_time(name) for name in (wide + narrow)[:entries]]
            client.ask(ApiKey.LIST_OFFSETS, 7, body)
        with broker.window(f"delete {len(places)} tiered partitions"):
            body = build(
                ApiKey.DELETE_TOPICS, topic_names=wide + narrow, timeout_ms=DEADLINE_S * 1_000
            )
            client.ask(ApiKey.DELETE_TOPICS, 5, body)
    return broker.figures


def page(data: Path, scale: float) -> list[Figures]:
    """Five viewers of the page, and a reader of /health, beside 3,000 partitions with records."""
    broker = watched(data)
    names = topics("seen", int(3_000 * scale))
    places = [(name, n) for name in names for n in range(PARTITIONS_A_TOPIC)]
    frame = produce_frame(dict.fromkeys(places, batch(b"x" * 100)))
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, names, PARTITIONS_A_TOPIC)
        for name, viewers in (("nobody looks", 0), (f"the page, {len(places)} partitions", 5)):
            produced(client, [frame])
            with broker.window(name):
                for _ in range(20):
                    for path in ([STATE] * viewers + ["/health"]) if viewers else []:
                        got(f"http://{broker.http}{path}")
                    time.sleep(1)
    return broker.figures


def got(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return bytes(answer.read())


def parked(names: Sequence[str], entries: int) -> Any:
    """A fetch at the end of each partition, where there is one record."""
    body = fetch_all(names, entries)
    for topic in body.topics:
        for asked in topic.partitions:
            asked.fetch_offset = 1
    body.max_wait_ms, body.min_bytes = PARK_MS, 1
    return body


def wake(bootstrap: str, frame: bytes) -> None:
    with Client(bootstrap) as client:
        produced(client, [frame])


def by_time(name: str) -> Any:
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    asked = cls.Topics.Partitions(partition_index=0, timestamp=1)
    return cls.Topics(name=name, partitions=[asked])


def set_broker_config(client: Client, key: str, text: str) -> None:
    cls = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS).cls
    configs = [cls.Resources.Configs(name=key, config_operation=0, value=text)]
    resources = [cls.Resources(resource_type=4, resource_name="", configs=configs)]
    answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, cls(resources=resources))
    assert not any(one.error_code for one in answer.responses), answer
