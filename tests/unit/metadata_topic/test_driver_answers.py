"""Answers of the driver that wait for a thread: what may have changed meanwhile."""

from pathlib import Path

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.effects import RespondRecords
from metadata_topic.raft.messages import FetchResponse, Response, Standing
from tests.support.worlds.driven_quorum import DrivenQuorum
from tests.support.worlds.pools import HeldPool


def test_records_read_while_the_lead_was_lost_are_not_sent(tmp_path: Path) -> None:
    """They left memory, so a thread read them; meanwhile the log may have been cut."""
    quorum = DrivenQuorum(tmp_path, [1])
    node = quorum.members[1]
    node.reads = pool = HeldPool(is_holding=False)
    quorum.start()
    assert node.driver is not None
    node.propose_noop()
    node.opened.log.read_resident = lambda *_: None  # type: ignore[method-assign]
    epoch, end = node.driver.core.epoch, node.opened.log.end_offset
    pool.is_holding = True
    answers: list[Response] = []
    token = node.driver._answers.expect(answers.append)
    node.driver._answers.respond_records(
        RespondRecords(token, Standing(epoch, node.id), end, 0, 0, end, 1 << 20, 0)
    )
    assert (pool.held, answers) == (1, [])
    node.driver.resign("a test")  # it leads again at once, in the next epoch
    assert node.driver.core.epoch > epoch
    pool.release()
    quorum.advance(10)
    [answer] = answers
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.data) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
