"""A controller's health: a leader must be known, and what is committed must be applied."""

import json

from broker.observe.health import Health
from broker.observe.quorum_health import QuorumHealth
from metadata_topic.quorum.view import QuorumView

TIMEOUT_MS = 2_000


class Told:
    """A replica that is as the test says."""

    def __init__(self) -> None:
        self.view = QuorumView(epoch=3)
        self.applied_end = 0

    def describe(self) -> QuorumView:
        return self.view


def test_without_a_leader_for_two_fetch_timeouts_it_is_unhealthy() -> None:
    told = Told()
    health = QuorumHealth(told, fetch_timeout_ms=TIMEOUT_MS, now_ms=1_000)
    assert health.problems(1_000 + 2 * TIMEOUT_MS) == ()
    (problem,) = health.problems(1_001 + 2 * TIMEOUT_MS)
    assert "4001 ms" in problem
    assert "epoch 3" in problem
    told.view = QuorumView(epoch=4, leader_id=2)
    health.look(20_000)
    told.view = QuorumView(epoch=5)
    assert health.problems(20_000 + 2 * TIMEOUT_MS) == ()
    assert health.problems(20_001 + 2 * TIMEOUT_MS)


def test_a_leader_that_is_known_and_does_not_answer_is_none() -> None:
    told = Told()
    health = QuorumHealth(told, fetch_timeout_ms=TIMEOUT_MS, now_ms=0)
    told.view = QuorumView(epoch=4, leader_id=2, leader_answered_ms=900, high_watermark=0)
    health.look(1_000)
    told.view = QuorumView(epoch=4, leader_id=2, leader_answered_ms=1_500, high_watermark=0)
    assert health.problems(1_500 + 2 * TIMEOUT_MS) == ()
    (problem,) = health.problems(1_501 + 2 * TIMEOUT_MS)
    assert "then it was node 2" in problem
    assert health.waits_for(1_501 + 2 * TIMEOUT_MS)
    told.view = QuorumView(epoch=5, leader_id=3, leader_answered_ms=1_500, high_watermark=0)
    assert health.problems(9_000) == (), "a new one was heard of"


def test_it_is_ready_once_what_a_leader_committed_is_applied() -> None:
    told = Told()
    health = QuorumHealth(told, fetch_timeout_ms=TIMEOUT_MS, now_ms=0)
    assert "no leader" in health.waits_for(0)[0]
    told.view = QuorumView(epoch=4, leader_id=2)
    assert "not known yet" in health.waits_for(0)[0]
    told.view, told.applied_end = QuorumView(epoch=4, leader_id=2, high_watermark=7), 6
    assert "6 of 7" in health.waits_for(0)[0]
    told.applied_end = 7
    assert health.waits_for(0) == ()
    # Of a follower that lags the known one is at most the end of its log.
    told.view = QuorumView(epoch=4, leader_id=2, high_watermark=7, leader_high_watermark=300)
    assert "7 of 300" in health.waits_for(0)[0]


def test_the_page_of_a_controller_that_runs_says_what_it_waits_for() -> None:
    told = Told()
    quorum = QuorumHealth(told, fetch_timeout_ms=TIMEOUT_MS, now_ms=0)
    health = Health(5, kind="controller", waits_for=lambda: quorum.waits_for(0))
    assert json.loads(health.ready_page().body)["reasons"] == ["the controller is starting"]
    health.stage = "running"
    page = health.ready_page()
    assert page.status == 503
    assert json.loads(page.body)["reasons"] == ["no leader of the metadata quorum is known"]
    told.view, told.applied_end = QuorumView(epoch=4, leader_id=2, high_watermark=7), 7
    assert health.ready_page().status == 200
