"""What DescribeQuorum says of one replica."""

from metadata_topic.quorum.described import Now, describe_quorum
from metadata_topic.raft.messages import BatchFacts, FetchRequest
from tests.support.worlds.told_core import ToldCore, key


def high_watermark(node: ToldCore) -> int:
    return describe_quorum(node.core, Now(0, node.now_ms)).high_watermark


def test_a_new_leader_names_no_high_watermark_before_it_commits_in_its_epoch() -> None:
    """As Kafka. What it knew as a follower may be less than what its predecessor acknowledged."""
    node = ToldCore()
    fetch = node.follow()
    node.answer(fetch, node.records(BatchFacts(0, 8, 1), high_watermark=5))
    assert high_watermark(node) == 5
    node.lead()
    assert high_watermark(node) == -1
    assert node.core.high_watermark == 5, "it goes on to know it"
    node.ask(FetchRequest(key(3), node.core.epoch, 9, node.core.epoch))
    assert high_watermark(node) == node.core.high_watermark == 9
