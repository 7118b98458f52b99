"""The page in a browser. What only this finds: a script that does not run under the page's own
Content-Security-Policy, a name that becomes markup, a drawing that does not follow the node, and a
page that holds the browser up. Values are the matter of `test_console_state.py`.
"""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import BrokerProcess, until
from tests.support.console.browser import Page, chromium_and_driver, opened

pytestmark = [pytest.mark.lasts(seconds=30), pytest.mark.slow]

NO_COORDINATOR_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
TIDES = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
HOSTILE = "</td><img src=x onerror=document.title='harm'>"


def fill(broker: BrokerProcess) -> None:
    """A tiered topic whose first segments are remote only, one that is not, and their readers."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("tides", 2, 1, config=TIDES), NewTopic("orders", 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(30_000):
        producer.produce("tides", b"x" * 200, partition=number % 2)
        if number % 1_000 == 0:
            producer.produce("orders", b"y" * 100)
            producer.poll(0)
    assert producer.flush(60) == 0
    for group, topic, offset in ((HOSTILE, "tides", 4_000), ("billing", "orders", 10)):
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        until(partial(has_committed, reader, topic, offset), f"{group} has committed")
        reader.close()


def has_committed(reader: Consumer, topic: str, offset: int) -> bool:
    """Commit; False while the group has no coordinator: its topic is being made."""
    try:
        reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() in NO_COORDINATOR_YET:
            return False
        raise
    return True


def copied(broker: BrokerProcess) -> bool:
    """Whether both partitions have left the local disk but for their last segment."""
    state = json.loads(broker.http("/console/state.json")[1])
    found = [one for one in state["partitions"] if one["topic"] == "tides"]
    return len(found) == 2 and all(one["local_start"] > 0 < one["copied_end"] for one in found)


@pytest.fixture(scope="module", autouse=True)
def browser_is_there() -> None:
    """Before a broker is started for nothing."""
    chromium_and_driver()


@pytest.fixture(scope="module")
def page(shared_tiered_broker: BrokerProcess) -> Iterator[Page]:
    fill(shared_tiered_broker)
    until(lambda: copied(shared_tiered_broker), "the topic is copied and dropped here")
    with opened(f"http://127.0.0.1:{shared_tiered_broker.http_port}/") as found:
        yield found


@pytest.mark.smoke
def test_the_page_draws_both_tiers_and_where_a_group_is(page: Page) -> None:
    page.load()
    page.keep("console-light")
    assert "green" in page.text("#status")
    assert "tides-1" in page.text("#partitions")
    [drawing] = page.run(
        """return [...document.querySelectorAll(".partition")]
        .filter((row) => row.querySelector("strong").textContent === "tides-0")
        .map((row) => Object.fromEntries(["remote", "local"].map((name) => {
            const bar = row.querySelector(`rect.${name}`);
            return [name, ["x", "width"].map((one) => Number(bar.getAttribute(one)))];
        })))"""
    )
    remote, local = drawing["remote"], drawing["local"]
    assert remote[0] == 0
    assert 0 < remote[1] < 1_000
    assert local[0] > 0
    assert local[0] + local[1] == pytest.approx(1_000)
    assert "lag 11,000" in page.text("#partitions")
    assert page.run("return document.querySelectorAll('#charts figure').length") >= 4
    assert "leader" in page.text("#voters")
    assert page.complaints() == []


def test_a_name_never_becomes_markup(page: Page) -> None:
    page.load()
    assert HOSTILE in page.text("#groups")
    assert HOSTILE in page.text("#partitions")
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.title").startswith("Tidemark")
    assert page.complaints() == []


def test_it_follows_the_node_and_says_when_that_is_gone(
    page: Page, shared_tiered_broker: BrokerProcess
) -> None:
    page.load()
    producer = Producer({"bootstrap.servers": shared_tiered_broker.bootstrap})
    for _ in range(70):
        producer.produce("orders", b"z")
    assert producer.flush(30) == 0
    end = "log end offset 100 "
    page.wait(f"return document.getElementById('partitions').innerText.includes('{end}')")
    page.run("window.fetch = () => Promise.reject(new Error('refused'))")
    page.wait("return !document.getElementById('away').hidden")
    assert "does not answer for" in page.text("#away")


def test_topics_are_found_by_their_names(page: Page) -> None:
    page.load()
    titles = "return [...document.querySelectorAll('.partition strong')].map((e) => e.textContent)"
    assert page.run(titles) == ["orders-0", "tides-0", "tides-1"]
    page.driver.find_element("id", "filter").send_keys("ORD")
    page.wait(f"return (() => {{{titles}}})().length === 1")
    page.driver.find_element("id", "filter").clear()
    page.driver.find_element("id", "internal").click()
    page.wait(f"return (() => {{{titles}}})().includes('__consumer_offsets-0')")


@pytest.mark.parametrize("dark", [True, False])
def test_it_fits_a_phone_and_reads_without_colour(page: Page, dark: bool) -> None:
    page.load(width=360, height=2_000, dark=dark, grey=True)
    page.keep("console-phone-dark" if dark else "console-phone-light")
    assert page.run("return document.documentElement.scrollWidth") <= 360
    fills = """return ["remote", "local"].map((name) =>
        getComputedStyle(document.querySelector(`rect.${name}`)).fill)"""
    assert ["hatch" in one for one in page.run(fills)] == [True, False]
    assert "●" in page.text("#status")


def test_it_is_dark_where_the_browser_is(page: Page) -> None:
    page.load(dark=True)
    page.keep("console-dark")
    ground = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert max(page.run(ground)) < 64
    page.load()
    assert min(page.run(ground)) > 192
