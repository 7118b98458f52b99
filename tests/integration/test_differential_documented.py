"""Every rule that excuses a difference from Kafka is in the document that says why."""

from tests.support.brokers.process import ROOT
from tests.support.differential.groups.known import KNOWN as KNOWN_OF_GROUPS
from tests.support.differential.known import KNOWN


def test_every_excused_difference_is_written_down() -> None:
    text = (ROOT / "docs/decisions/differences-from-kafka.md").read_text()
    assert [rule for rule in KNOWN if f"| {rule} |" not in text] == []


def test_every_excused_difference_about_groups_is_written_down() -> None:
    text = (ROOT / "docs/groups-beside-kafka.md").read_text()
    assert [rule for rule in KNOWN_OF_GROUPS if f"| {rule} |" not in text] == []
