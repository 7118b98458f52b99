"""What was found of a cluster, validated."""

from dataclasses import replace

import pytest

from tidemark.quorum.description import Endpoint, QuorumDescription, ReplicaState
from tidemark.status.facts import ClusterFacts, CopyLag, NodeFacts, Page
from tidemark.status.report import endangered_quorum, validate

NOW_MS = 1_000_000
ON = {"remote.log.storage.system.enable": "true"}
WELL = Page("green", "running")


def replica(node_id: int, *, end: int = 100, fetched_ms_ago: int = 50) -> ReplicaState:
    at_ms = NOW_MS - fetched_ms_ago
    return ReplicaState(node_id, bytes(16), end, at_ms, at_ms)


def quorum(*voters: ReplicaState, observers: tuple[ReplicaState, ...] = ()) -> QuorumDescription:
    return QuorumDescription(
        cluster_id="c",
        leader_id=1,
        leader_epoch=4,
        high_watermark=100,
        voters=(replica(1, fetched_ms_ago=0), *voters),
        observers=observers,
        endpoints={1: (Endpoint("CONTROLLER", "h1", 9093),)},
    )


def controller(node_id: int, *, silence: str = "", page: Page | None = WELL) -> NodeFacts:
    return NodeFacts(node_id, (f"h{node_id}", 9093), silence=silence, page=page)


def broker(
    node_id: int, *, is_fenced: bool = False, silence: str = "", page: Page | None = WELL
) -> NodeFacts:
    place = (f"h{node_id}", 9092)
    return NodeFacts(node_id, place, is_fenced, silence=silence, settings=ON, page=page)


def well() -> ClusterFacts:
    return ClusterFacts(
        cluster_id="c",
        quorum=quorum(replica(2), replica(3), observers=(replica(11),)),
        brokers={11: broker(11)},
        controllers={one: controller(one) for one in (1, 2, 3)},
        partition_count=7,
    )


def test_partitions_that_nobody_could_look_at_are_yellow() -> None:
    """One of those may be without a leader."""
    silence = "after 0 of them: h11:9092: timed out"
    report = validate(replace(well(), partition_count=None, partition_silence=silence))
    assert report.status == "yellow"
    assert report.reasons == (f"not all partitions could be looked at: {silence}",)
    assert "partitions: " not in report.text()


def test_a_cluster_without_a_complaint_is_green() -> None:
    report = validate(well())
    assert (report.status, report.reasons) == ("green", ())
    assert [(one.id, one.role, one.lag) for one in report.controllers] == [
        (1, "leader", 0),
        (2, "follower", 0),
        (3, "follower", 0),
    ]
    (row,) = report.brokers
    assert (row.state, row.role, row.tier, row.health) == ("unfenced", "observer", "on", "green")


def test_the_lost_directory_of_a_replaced_broker_is_not_validated() -> None:
    facts = well()
    lost, new = replica(11, end=20, fetched_ms_ago=90_000), replica(11)
    for observers in ((lost, new), (new, lost)):
        facts.quorum = quorum(replica(2), replica(3), observers=observers)
        report = validate(facts)
        assert (report.status, report.reasons) == ("green", ())
        assert report.brokers[0].lag == 0


def test_a_controller_that_is_down_is_yellow_while_others_lead() -> None:
    facts = well()
    facts.controllers[3] = controller(3, silence="h3:9093: Connection refused", page=None)
    report = validate(facts)
    assert report.status == "yellow"
    assert report.reasons == ("controller 3 does not answer: h3:9093: Connection refused",)
    assert report.controllers[2].state == "silent"


def test_a_follower_that_answers_and_does_not_fetch_is_yellow() -> None:
    facts = well()
    facts.quorum = quorum(replica(2), replica(3, end=20, fetched_ms_ago=9_000))
    facts.brokers = None
    report = validate(facts)
    assert report.status == "yellow"
    assert report.reasons == (
        "controller 3 does not follow the leader: its last fetch was 9000 ms ago",
    )
    assert report.controllers[2].lag == 80


def test_a_follower_is_compared_with_the_leaders_clock() -> None:
    facts = well()
    later = replica(1, fetched_ms_ago=-3_600_000)
    facts.quorum = replace(
        quorum(replica(2, fetched_ms_ago=-3_599_900)),
        voters=(later, replica(2, fetched_ms_ago=-3_599_900)),
    )
    facts.controllers.pop(3)
    facts.brokers = None
    assert validate(facts).status == "green"


def test_a_voter_that_has_never_fetched_is_yellow() -> None:
    facts = well()
    facts.quorum = quorum(replica(2), ReplicaState(3, bytes(16), -1), observers=(replica(11),))
    assert validate(facts).reasons == (
        "controller 3 does not follow the leader: it has never fetched",
    )


def test_no_leader_is_unhealthy() -> None:
    facts = well()
    facts.quorum, facts.quorum_silence = None, "nobody described the quorum"
    report = validate(facts)
    assert report.status == "red"
    assert report.reasons == ("controllers: nobody described the quorum",)
    assert report.as_json()["quorum"] is None
    assert "no leader is known" in report.text()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (broker(11, is_fenced=True), "broker 11 is fenced"),
        (
            broker(11, silence="h11:9092: timed out"),
            "broker 11 does not answer: h11:9092: timed out",
        ),
        (broker(11, page=Page("red", "running", ("tier: no",))), "node 11: tier: no"),
    ],
)
def test_a_broker_that_serves_nobody_is_unhealthy(found: NodeFacts, said: str) -> None:
    facts = well()
    facts.brokers = {11: found}
    report = validate(facts)
    assert report.status == "red"
    assert report.reasons[0].startswith(said)


def test_an_unfenced_broker_that_does_not_fetch_is_yellow() -> None:
    facts = well()
    facts.quorum = quorum(replica(2), replica(3))
    assert validate(facts).reasons == (
        "broker 11 does not fetch the metadata log: the leader knows of no fetch",
    )


def test_partitions_without_a_leader_are_unhealthy_and_named_up_to_a_bound() -> None:
    facts = well()
    facts.offline = [f"t-{one}" for one in range(30)]
    report = validate(facts)
    assert report.status == "red"
    assert report.reasons[0].startswith("partitions without a leader: t-0, t-1,")
    assert report.reasons[0].endswith("and 10 more")


def test_a_yellow_page_is_yellow_and_an_unread_one_changes_nothing() -> None:
    facts = well()
    facts.controllers[2].page = Page("", reasons=("http://127.0.0.1:9464/health does not answer",))
    assert validate(facts).status == "green"
    assert "node 2: its health is unknown: http://127.0.0.1:9464" in validate(facts).text()
    facts.controllers[2].page = Page("yellow", "running", ("log: slow",))
    report = validate(facts)
    assert (report.status, report.reasons) == ("yellow", ("node 2: log: slow",))


def test_a_combined_node_with_a_silent_controller_is_validated_by_its_page() -> None:
    facts = well()
    facts.brokers = {3: broker(3, page=Page("red", "running", ("tier: no",)))}
    facts.controllers[3] = controller(3, silence="gone", page=None)
    report = validate(facts)
    assert report.status == "red"
    assert "node 3: tier: no" in report.reasons


def test_a_node_that_is_not_running_says_how_far_it_is() -> None:
    facts = well()
    facts.controllers[2].page = Page("green", "recovering 3 of 7 logs")
    assert "node 2: recovering 3 of 7 logs\n" in validate(facts).text()


def test_unhealthy_reasons_come_first() -> None:
    facts = well()
    facts.controllers[3] = controller(3, silence="gone")
    facts.offline = ["t-0"]
    assert validate(facts).reasons[0].startswith("partitions")


def test_brokers_that_were_not_asked_are_no_table() -> None:
    facts = well()
    facts.brokers, facts.partition_count = None, None
    report = validate(facts)
    assert report.as_json()["brokers"] is None
    assert "brokers" not in report.text()


@pytest.mark.parametrize(
    ("node_id", "silent", "is_needed"),
    [(2, 50, False), (2, 60_000, True), (3, 60_000, False), (11, 60_000, False)],
)
def test_a_voter_is_needed_where_too_few_others_follow(
    node_id: int, silent: int, is_needed: bool
) -> None:
    """Of the voters 1, 2 and 3 the last is silent for so long."""
    found = endangered_quorum(node_id, quorum(replica(2), replica(3, fetched_ms_ago=silent)))
    assert bool(found) is is_needed
    assert all(one.startswith("1 of 3 controllers would follow, and 2 have to") for one in found)


def test_a_reason_has_its_remedy_beneath_it() -> None:
    facts = well()
    facts.controllers[3] = controller(3, silence="h3:9093: Connection refused", page=None)
    facts.offline = ["t-0"]
    facts.brokers = {11: broker(11, page=Page("yellow", "running", ("tier: x; do y",)))}
    report = validate(facts)
    lines = report.text(80).splitlines()
    for reason, word in (
        ("partitions without a leader: t-0", "topics describe"),
        ("controller 3 does not answer: h3:9093: Connection refused", "start it again"),
    ):
        remedy = report.remedies[reason]
        assert word in remedy
        assert lines[lines.index(reason) + 1] == f"  {remedy}"
    assert "node 11: tier: x; do y" not in report.remedies
    assert report.as_json()["remedies"] == report.remedies


def test_a_reason_of_a_page_has_the_remedy_of_the_page() -> None:
    facts = well()
    said = Page("red", "running", ("logs: no",), {"logs: no": "repair\x1b it"})
    facts.brokers = {11: broker(11, page=said)}
    report = validate(facts)
    assert report.remedies == {"node 11: logs: no": "repair\x1b it"}
    lines = report.text().splitlines()
    shown = lines[lines.index("node 11: logs: no") + 1]
    assert shown.startswith("  repair")
    assert "\x1b" not in shown


def test_partitions_with_one_cause_are_one_line_and_all_of_them_in_json() -> None:
    facts = well()
    said = [f"partitions: tides-{one} is offline: no file /d/tides-{one}/0" for one in range(100)]
    said[40:40] = ["partitions: tides-7 is offline: damaged", "logs: log directory /d is offline"]
    remedies = dict.fromkeys(said, "bring it back")
    facts.brokers = {
        one: broker(one, page=Page("red", "", tuple(said), remedies)) for one in (1, 2)
    }
    report = validate(facts)
    shown = [line for line in report.text().splitlines() if line.startswith("node 2: ")]
    assert shown == [
        "node 2: partitions: tides-0 is offline: no file /d/tides-0/0 "
        "(the same for 100 partitions: tides-0, tides-1, tides-2, ...)",
        "node 2: partitions: tides-7 is offline: damaged",
        "node 2: logs: log directory /d is offline",
    ]
    assert report.text().count("  bring it back\n") == 6
    assert len(report.as_json()["reasons"]) == 204  # type: ignore[arg-type]


def test_no_remedy_is_wider_than_a_terminal() -> None:
    facts = well()
    facts.quorum, facts.quorum_silence = None, "nobody described the quorum"
    facts.broker_silence, facts.offline = "h1:9092: timed out", ["t-0"]
    facts.controllers[3] = controller(3, silence="gone")
    facts.brokers = {11: broker(11, is_fenced=True)}
    remedies = {*validate(facts).remedies.values()}
    facts.quorum = quorum(replica(2, fetched_ms_ago=9_000))
    remedies |= {*validate(facts).remedies.values()}
    assert len(remedies) == 6
    assert max(map(len, remedies)) <= 78


def test_topics_that_lack_most_in_the_remote_tier_come_first_up_to_a_bound() -> None:
    facts = well()
    first, second = broker(11), broker(12)
    first.copy_lag = {"b": CopyLag(1, 10), "c": CopyLag(0, 0)}
    second.copy_lag = {"b": CopyLag(2, 20), "d": CopyLag(1, 40)}
    facts.brokers = {11: first, 12: second}
    facts.topics = {"a": 1, "b": 2, "c": 1, "d": 1}
    report = validate(facts)
    assert [(one.topic, one.lag) for one in report.topics] == [
        ("d", (1, 40)),
        ("b", (3, 30)),
        ("c", (0, 0)),
        ("a", None),
    ]
    lines = report.text().splitlines()
    assert lines[lines.index("topics: 4, partitions: 7, offline: 0") + 2].split() == [
        *("d", "1", "1", "40"),
    ]
    first.copy_lag = {f"t{number:02}": CopyLag(0, 0) for number in range(12)}
    facts.topics = dict.fromkeys(first.copy_lag, 1)
    shown = validate(facts).text()
    assert "and 2 more tiered topics" in shown
    assert ("t09" in shown, "t10" in shown) == (True, False)


def test_a_cluster_is_reached_where_any_node_answers() -> None:
    nobody = ClusterFacts(broker_silence="refused")
    nobody.controllers = {1: controller(1, silence="refused")}
    assert not nobody.is_reached
    assert replace(nobody, brokers={}).is_reached
    assert replace(nobody, quorum=quorum()).is_reached
    assert replace(nobody, controllers={1: controller(1)}).is_reached


def test_each_node_shows_its_own_version() -> None:
    facts = well()
    assert facts.brokers is not None
    facts.brokers[11].version = "1.2.3"
    report = validate(facts)
    assert (report.brokers[0].version, report.controllers[0].version) == ("1.2.3", "-")
    (line,) = [one for one in report.text().splitlines() if "h11:9092" in one]
    assert line.split()[-1] == "1.2.3"
    assert report.as_json()["brokers"][0]["version"] == "1.2.3"  # type: ignore[index]
