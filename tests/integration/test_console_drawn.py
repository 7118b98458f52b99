"""What the page says of a node whose facts a test makes up: no broker is started.

What only a browser finds: names that turn text round, cells that are cut off on a phone, and words
that are not true of what the state says.
"""

from collections.abc import Iterator

import pytest

from broker.observe.console.facts import BrokerFacts, CommittedFacts, GroupFacts, TierFacts
from broker.observe.health import Health
from tests.support.console.browser import Page, opened
from tests.support.console.served import served_page
from tests.support.console.source import ListedSource, log_of

pytestmark = [pytest.mark.lasts(seconds=10), pytest.mark.slow]

ROUND = "\u202egnp.exe"
LONG = "a-topic-with-a-long-name" + "x" * 200


@pytest.fixture(scope="module")
def source() -> ListedSource:
    return ListedSource(
        all_partitions=[
            log_of("orders", problem="offline: its disk failed", is_led=False, leader=-1),
            log_of("tides", 0, 100, is_tiered=True, copied_end=90, local_start=80),
            log_of(LONG),
        ],
        all_groups=[
            GroupFacts(ROUND, "PreparingRebalance", 3, 1),
            GroupFacts("partly", "Empty", 0, 2),
            GroupFacts("unread", "Empty", 0, 0),
        ],
        offsets=[
            CommittedFacts(ROUND, "tides", 0, 40),
            CommittedFacts("partly", "tides", 0, 93),
            CommittedFacts("partly", "elsewhere", 0, 1),
        ],
        all_brokers=[
            BrokerFacts(n, ["127.0.0.1:9092"], "", False, False, True) for n in range(102)
        ],
        of_tier=TierFacts("starting", 7, 2, 0, 0),
    )


@pytest.fixture(scope="module")
def page(source: ListedSource) -> Iterator[Page]:
    with served_page(source, Health(1, stage="running")) as url, opened(url) as found:
        yield found


def test_a_name_that_turns_text_round_is_shown_as_it_is_written(page: Page) -> None:
    page.load()
    drawn = page.run("return document.getElementById('partitions').textContent")
    assert r"\u202egnp.exe: committed offset 40, lag 60" in drawn
    assert r"\u202egnp.exe" in page.text("#groups")
    assert "\u202e" not in page.run("return document.documentElement.textContent")


def test_an_offline_partition_is_not_said_to_be_led_or_in_sync(page: Page) -> None:
    page.load()
    [row] = page.run(
        """return [...document.querySelectorAll(".partition")].map((row) => row.textContent)
        .filter((text) => text.startsWith("orders-0"))"""
    )
    assert "offline: its disk failed" in row
    assert "in sync" not in row
    assert "node" not in row


def test_reads_that_gave_bytes_are_those_that_are_done(page: Page) -> None:
    page.load()
    rows = "return [...document.querySelectorAll('#tier-activity tr')].map((row) => row.innerText)"
    copied, deleted, read = (one.split("\t") for one in page.run(rows))
    assert copied == ["segments copied", "0", "■ 3,481,000", "-"]  # all that were tried failed
    assert deleted[2] == "■ 3,481,000"
    assert read == ["remote fetches", "3,481,000", "■ 3,481,000", "3,481,000"]
    assert page.text("#tier-process") == "tier process starting, pid 7, restarted 2 times"


def test_a_lag_that_is_known_in_part_is_no_lag_of_all(page: Page) -> None:
    page.load()
    lags = """return [...document.querySelectorAll("#groups tr")].map((row) =>
        row.children[1].innerText)"""
    assert page.run(lags) == ["60", "≥ 7", "-"]
    assert "lag on this broker alone" in page.text("#more-groups")


def test_what_other_nodes_know_is_said_to_be_there(page: Page, source: ListedSource) -> None:
    page.load()
    assert "More brokers are not shown." in page.text("#more-brokers")
    assert "the other brokers' pages show theirs" in page.text("#more-groups")
    groups, source.all_groups = source.all_groups, []
    try:
        page.wait("return document.getElementById('groups-table').hidden")
        assert "No group has this broker as coordinator" in page.text("#groups-section")
    finally:
        source.all_groups = groups
    page.wait("return !document.getElementById('groups-table').hidden")


def test_nothing_is_cut_off_on_a_phone(page: Page) -> None:
    page.load(width=360, height=2_000)
    page.wait("return document.getElementById('partitions').innerText.includes('lag 60')")
    page.keep("console-drawn-phone")
    cut = """return [...document.querySelectorAll("h3, .head, .head > *, .groups > *, .numbers, p")]
        .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0
            || one.getBoundingClientRect().right > innerWidth)
        .map((one) => one.textContent)"""
    assert page.run(cut) == []
    lag = "return document.querySelector('#groups td.number').getBoundingClientRect().right"
    assert page.run(lag) <= 360


def test_a_node_that_does_not_answer_is_not_said_to_be_well(page: Page) -> None:
    page.load()
    assert "green" in page.text("#status")
    page.run("window.fetch = () => Promise.reject(new Error('refused'))")
    page.wait("return document.getElementById('status').innerText === '■ no answer'")
    assert page.driver.title == "Tidemark 1: no answer"
    assert "does not answer for" in page.text("#away")
    page.load()
    assert page.driver.title == "Tidemark 1: green"
