"""The page of a node with 3,000 partitions. What only a browser finds: a page that is held up by
what it draws, and red that cannot be read. The broker's part is `test_console_slices.py`.
"""

from collections.abc import Iterator

import pytest

from broker.observe.console.facts import CommittedFacts, GroupFacts
from broker.observe.health import Health
from tests.support.console.browser import Page, opened
from tests.support.console.served import served_page
from tests.support.console.source import ListedSource, log_of

pytestmark = pytest.mark.slow

ILL = "log directory /data/d2 is offline: [Errno 28] No space left on device"


class Growing(ListedSource):
    """Some partitions grow with each look."""

    looks = 0

    def partitions(self):  # type: ignore[no-untyped-def]
        self.looks += 1
        for number, one in enumerate(self.all_partitions):
            end = one.log_end + self.looks * (number % 7 == 0)
            yield one._replace(log_end=end, committed_end=end)

    def committed_end(self, topic: str, partition: int) -> int:
        return 100_000


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    facts = {"is_tiered": True, "copied_end": 90_000, "local_start": 80_000, "replicas": 3}
    places = [(f"topic-{n % 60:02}", n // 60) for n in range(3_000)]
    source = Growing(
        all_partitions=[log_of(topic, n, 100_000, isr=3, **facts) for topic, n in places],
        all_groups=[GroupFacts(f"group-{n}", "Stable", 3, 500) for n in range(200)],
        offsets=[
            CommittedFacts(f"group-{n % 5}", topic, number, 10_000 + n * 7)
            for n, (topic, number) in enumerate(places)
        ],
    )
    source.all_partitions[2_999] = log_of(*places[2_999], problem=f"offline: {ILL}", isr=0)
    health = Health(1, stage="running")
    health.checks["logs"] = lambda: [ILL]
    health.warnings["followers"] = lambda: ["a leader does not answer"]
    with served_page(source, health) as url, opened(url) as found:
        yield found


def test_the_first_500_are_drawn_the_ill_one_among_them(page: Page) -> None:
    page.load()
    page.wait("return document.querySelectorAll('.partition').length === 500")
    page.keep("console-many")
    assert "3,000 partitions here" in page.text("#sums")
    assert "1 ill" in page.text("#sums")
    assert "2,500 more" in page.text("#more-partitions")
    first = "return document.querySelector('.partition strong').textContent"
    assert page.run(first) == "topic-59-49"
    ill = "return [...document.querySelectorAll('.partition .red')].map((e) => e.textContent)"
    assert [one for one in page.run(ill) if one] == [f"■ offline: {ILL}"]


def test_unhealthy_and_yellow_have_their_words_and_what_to_do(page: Page) -> None:
    page.load()
    unhealthy, yellow = page.text("#reasons").split("▲", 1)
    assert "■ logs: " in unhealthy
    assert ILL in unhealthy
    assert "What to do: `tidemark directories list`" in unhealthy
    assert "followers: a leader does not answer" in yellow
    assert "■ red" in page.text("#status")


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_the_browser_is_never_held_for_50_ms(page: Page) -> None:
    """The best of some loads: a busy machine holds any page, and a new browser loads fonts."""
    page.load()
    seen = []
    for _ in range(8):
        page.load()
        for _ in range(3):
            page.redrawn()
        page.run("document.getElementById('filter').value = 'topic-0'")
        page.redrawn()
        seen.append(page.long_tasks())
        if not seen[-1]:
            return
    pytest.fail(f"the page was held (when, how long, in ms): {seen}")
