"""Creating, changing and deleting topics through the handlers, on an image in memory."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.topics.auto_creation import GRACE_MS, AutoTopicCreation
from broker.topics.creation import BACKLOG_MAX, MANY_PARTITIONS
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from metadata_topic.controller.topic_specs import Config, TopicDefaults, TopicSpec
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from tests.support.worlds.admin import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    TOPIC,
    Admin,
)


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin({}, tmp_path)


def test_a_created_topic_is_told_with_all_its_settings(admin: Admin) -> None:
    (topic,) = admin.create("orders", num_partitions=2, configs={"retention.ms": "1000"})
    assert topic.error_code == 0
    assert topic.error_message is None
    assert topic.topic_id == admin.node.image.topics_by_name["orders"].id
    assert (topic.num_partitions, topic.replication_factor) == (2, 1)
    names = [config.name for config in topic.configs]
    assert names == sorted(names)
    retention = next(config for config in topic.configs if config.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("1000", 1)


def test_minus_one_means_the_brokers_default(admin: Admin) -> None:
    (topic,) = admin.create("orders", num_partitions=-1, replication_factor=-1)
    assert topic.num_partitions == 3


def test_an_old_name_of_a_setting_is_stored_as_todays(tmp_path: Path) -> None:
    admin = Admin(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:X",
        },
        tmp_path,
    )
    (topic,) = admin.create("tides", configs={"remote.log.storage.enable": "true"})
    assert topic.error_code == 0
    assert admin.node.image.topic_config("tides") == {"remote.storage.enable": "true"}


BAD_TOPICS = {
    "empty": ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dot": (".", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "path": ("../../etc/x", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "250-characters": ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "32767-characters": ("x" * 32_767, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "not-ascii": ("bücher", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "newline": ("orders\n", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "collides": ("a.b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no-partitions": ("new", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "too-many-partitions": ("new", {"num_partitions": 10**9}, ErrorCode.POLICY_VIOLATION),
    "no-replicas": ("new", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "too-many-replicas": ("new", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown-key": ("new", {"configs": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
    "placeholder": ("new", {"configs": {"retention.ms": "${env:HOME}"}}, ErrorCode.INVALID_CONFIG),
    "null": ("new", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    "exists": ("a_b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
    "cluster": ("__cluster_metadata", {}, ErrorCode.POLICY_VIOLATION),
    "remote": ("__remote_log_metadata", {}, ErrorCode.POLICY_VIOLATION),
}


@pytest.mark.parametrize("row", BAD_TOPICS)
@pytest.mark.parametrize("version", [2, 7])
def test_bad_topic(admin: Admin, row: str, version: int) -> None:
    admin.create("a_b")
    before = admin.node.image
    name, fields, code = BAD_TOPICS[row]
    (topic,) = admin.create(name, version=version, **fields)
    assert (topic.name, topic.error_code) == (name, code)
    assert topic.error_message
    assert len(topic.error_message) < 700
    assert admin.node.image.topics_by_name == before.topics_by_name
    assert admin.node.image.configs == before.configs


@pytest.mark.parametrize("brokers", [[1, 1], [1, 9], []])
def test_bad_input_a_manual_assignment_that_cannot_be(admin: Admin, brokers: list[int]) -> None:
    cls = message("CreateTopicsRequest").cls.Topics.Assignments
    (topic,) = admin.create(
        "new",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[cls(partition_index=0, broker_ids=brokers)],
    )
    assert topic.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_one_bad_topic_does_not_hold_back_the_others(admin: Admin) -> None:
    answers = {t.name: t.error_code for t in admin.create("good", "bad name", "__cluster_metadata")}
    assert answers == {"good": 0, "bad name": 17, "__cluster_metadata": 44}
    assert list(admin.node.image.topics_by_name) == ["good"]


def test_validate_only_creates_nothing(admin: Admin) -> None:
    (topic,) = admin.create("orders", validate_only=True)
    assert (topic.error_code, topic.topic_id) == (0, ZERO_UUID)
    assert admin.node.image.topics_by_name == {}


def test_no_topic_is_made_while_the_disks_are_far_behind(admin: Admin) -> None:
    admin.backlog = BACKLOG_MAX
    (refused,) = admin.create("t")
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert str(BACKLOG_MAX) in refused.error_message
    assert admin.create("t", validate_only=True)[0].error_code == 0
    admin.backlog -= 1
    assert admin.create("t")[0].error_code == 0


def test_no_topic_is_made_that_would_use_the_reserve_of_descriptors(admin: Admin) -> None:
    """Partitions that cannot open their files are offline from their first moment on."""
    [broker_id] = admin.node.image.brokers
    admin.descriptors.by_broker = {broker_id: 5}
    first, second, third = admin.create("a", "b", "c", num_partitions=2)
    assert (first.error_code, second.error_code) == (0, 0)
    assert third.error_code == ErrorCode.POLICY_VIOLATION
    assert "ulimit -n" in third.error_message
    assert "1 descriptors left" in third.error_message
    assert list(admin.node.image.topics_by_name) == ["a", "b"]
    assert admin.create("c", num_partitions=1, validate_only=True)[0].error_code == 0
    said = [admin.create(name)[0].error_code for name in ("c", "d")]
    assert said == [0, ErrorCode.POLICY_VIOLATION], "what the last request took is gone"
    admin.descriptors.by_broker = {broker_id: 5 * admin.live.current.num_partitions}
    asyncio.run(admin.own_topics.auto_create([f"auto{n}" for n in range(7)]))
    made = [name for name in admin.node.image.topics_by_name if name.startswith("auto")]
    assert len(made) == 5
    admin.descriptors.by_broker = {broker_id + 1: 0}  # this one reports none: it has no bound
    assert admin.create("d", num_partitions=9)[0].error_code == 0


@pytest.mark.parametrize("version", range(2, 8))
def test_a_client_hears_of_no_error_that_it_does_not_know(admin: Admin, version: int) -> None:
    admin.backlog = BACKLOG_MAX
    answer = admin.create_answer("t", version=version)
    is_known = version >= 6
    known = ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_known else ErrorCode.REQUEST_TIMED_OUT
    assert answer.topics[0].error_code == known
    assert answer.throttle_time_ms > 0
    assert admin.node.image.topics_by_name == {}


async def test_topics_decided_in_time_are_created_even_if_the_disk_is_slow(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    admin.creation._settled = lambda _ids: never
    waiting = asyncio.ensure_future(admin.creation.create([TopicSpec("a")], timeout_ms=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert "created topic: name=a" in caplog.text
    waiting.cancel()
    created = await admin.creation.create([TopicSpec("b")], timeout_ms=1)
    assert [(one.name, one.error) for one in created] == [("b", None)]


async def test_an_answer_does_not_wait_long_for_many_partitions(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def wait(_futures: Any, **given: float) -> None:
        asked.append(given["timeout"])

    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    admin.creation._settled = lambda _ids: never
    monkeypatch.setattr(asyncio, "wait", wait)
    for name, partitions in (("few", MANY_PARTITIONS), ("many", MANY_PARTITIONS + 1)):
        spec = TopicSpec(name, num_partitions=partitions)
        (created,) = await admin.creation.create([spec], timeout_ms=60_000)
        assert created.error is None
    for_few, for_many = asked
    assert for_few > 10 * admin.creation.patience_s
    assert for_many == admin.creation.patience_s


async def test_both_waits_of_a_creation_share_its_time(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, asked = asyncio.get_running_loop(), []
    now_s = loop.time()
    never: asyncio.Future[None] = loop.create_future()
    submit = admin.creation._submit

    async def slow(decide: Any, **given: Any) -> Any:
        monkeypatch.setattr(loop, "time", lambda: now_s + 7)
        return await submit(decide, **given)

    async def wait(_futures: Any, **given: float) -> None:
        asked.append(round(given["timeout"]))

    admin.creation._settled = lambda _ids: never
    admin.creation._submit = slow
    monkeypatch.setattr(loop, "time", lambda: now_s)
    monkeypatch.setattr(asyncio, "wait", wait)
    await admin.creation.create([TopicSpec("a")], timeout_ms=10_000)
    assert asked == [3]


def test_a_metadata_log_that_takes_nothing_is_told_per_topic(admin: Admin) -> None:
    admin.node.broken = ApiError(ErrorCode.NOT_CONTROLLER, "the disk failed")
    assert [t.error_code for t in admin.create("a", "b")] == [41, 41]
    assert [t.error_code for t in admin.delete(("a", ZERO_UUID))] == [41]
    assert admin.alter(TOPIC, "a", ("retention.ms", SET, "1")).error_code == 41
    assert admin.metadata_of("a")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_more_than_once_is_refused_once_and_stays(admin: Admin) -> None:
    (made,) = admin.create("a")
    by_name, by_id = ("a", ZERO_UUID), (None, made.topic_id)
    for asked in ((by_name, by_name), (by_id, by_id), (by_name, by_id)):
        (answer,) = admin.delete(*asked)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    (answer,) = admin.delete(("none", ZERO_UUID), ("none", ZERO_UUID))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "a" in admin.node.image.topics_by_name


def test_topics_are_deleted_by_name_and_by_id(admin: Admin) -> None:
    first, second = admin.create("a", "b")
    answers = admin.delete(("a", ZERO_UUID), (None, second.topic_id))
    assert [(t.name, t.topic_id, t.error_code) for t in answers] == [
        ("a", first.topic_id, 0),
        ("b", second.topic_id, 0),
    ]
    assert admin.node.image.topics_by_name == {}


def test_what_was_deleted_is_named_in_the_log(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create("a", "b")
    caplog.set_level("INFO")
    admin.delete(("a", ZERO_UUID), ("none", ZERO_UUID))
    (said,) = [line for line in caplog.messages if line.startswith("deleted topic")]
    assert "name=a " in said


def test_bad_deletions_get_their_own_errors(admin: Admin) -> None:
    (known,) = admin.create("a")
    cases = {
        ("a", known.topic_id): ErrorCode.INVALID_REQUEST,
        (None, ZERO_UUID): ErrorCode.INVALID_REQUEST,
        ("nosuch", ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, b"x" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
        ("__cluster_metadata", ZERO_UUID): ErrorCode.POLICY_VIOLATION,
        ("__remote_log_metadata", ZERO_UUID): ErrorCode.POLICY_VIOLATION,
    }
    answers = admin.delete(*cases)
    assert {(t.name, t.topic_id): t.error_code for t in answers} == cases
    assert list(admin.node.image.topics_by_name) == ["a"]


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    admin = Admin({"delete.topic.enable": "false"}, tmp_path)
    admin.create("a")
    (answer,) = admin.delete(("a", ZERO_UUID))
    assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert "a" in admin.node.image.topics_by_name


def test_the_guarded_topic_cannot_be_deleted_by_its_id(admin: Admin) -> None:
    from metadata_topic.controller.topic_specs import TopicSpec

    (made,) = asyncio.run(admin.creation.create([TopicSpec("__remote_log_metadata", 1, 1)]))
    assert made.error is None
    (answer,) = admin.delete((None, made.topic_id))
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_changed_settings_are_described_and_in_force(admin: Admin) -> None:
    admin.create("orders")
    changed = admin.alter(
        TOPIC,
        "orders",
        ("retention.ms", SET, "5000"),
        ("cleanup.policy", APPEND, "compact"),
        ("local.log.retention.ms", SET, "-2"),
    )
    assert (changed.error_code, changed.error_message) == (0, None)
    config = admin.live.log_config("orders")
    assert (config.retention_ms, config.cleanup_policy) == (5000, frozenset({"delete", "compact"}))
    described = admin.describe(TOPIC, "orders", "retention.ms", "local.retention.ms", "nosuch")
    assert {c.name: (c.value, c.config_source) for c in described.configs} == {
        "retention.ms": ("5000", 1),
        "local.retention.ms": ("-2", 1),
    }
    admin.alter(TOPIC, "orders", ("retention.ms", DELETE, None))
    (entry,) = admin.describe(TOPIC, "orders", "retention.ms").configs
    assert (entry.value, entry.config_source) == ("604800000", 5)
    assert [s.name for s in entry.synonyms] == [] or entry.synonyms[0].source in (4, 5)


def test_the_metadata_topic_of_the_tier_may_be_changed_to_keep_everything(admin: Admin) -> None:
    name = "__remote_log_metadata"
    forgets = {"cleanup.policy": "compact", "retention.ms": "1000"}
    configs = tuple(Config(key, value) for key, value in forgets.items())
    asyncio.run(admin.creation.create([TopicSpec(name, 1, 1, configs=configs)]))
    assert admin.alter(TOPIC, name, ("cleanup.policy", SET, "delete")).error_code == 0
    assert admin.alter(TOPIC, name, ("retention.ms", SET, "-1")).error_code == 0
    for change in (("cleanup.policy", SET, "compact"), ("cleanup.policy", APPEND, "compact")):
        assert admin.alter(TOPIC, name, change).error_code == ErrorCode.POLICY_VIOLATION
    kept = admin.live.log_config(name)
    assert (kept.cleanup_policy, kept.retention_ms) == (frozenset({"delete"}), -1)
    answer = admin.alter(TOPIC, "__cluster_metadata", ("cleanup.policy", SET, "delete"))
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


BAD_CHANGES = {
    "unknown topic": (TOPIC, "nosuch", ("retention.ms", SET, "1"), 3),
    "unknown key": (TOPIC, "orders", ("no.such", SET, "1"), 40),
    "wrong value": (TOPIC, "orders", ("retention.ms", SET, "soon"), 40),
    "append to no list": (TOPIC, "orders", ("retention.ms", APPEND, "1"), 40),
    "null": (TOPIC, "orders", ("retention.ms", SET, None), 42),
    "operation": (TOPIC, "orders", ("retention.ms", 9, "1"), 42),
    "read-only": (BROKER, "1", ("node.id", SET, "4"), 42),
    "other broker": (BROKER, "7", ("log.retention.ms", SET, "4"), 102),
    "resource type": (99, "x", ("a", SET, "b"), 42),
    "cluster": (TOPIC, "__cluster_metadata", ("retention.ms", SET, "1"), 44),
    "remote": (TOPIC, "__remote_log_metadata", ("retention.ms", SET, "1"), 44),
}


@pytest.mark.parametrize("row", BAD_CHANGES)
def test_bad_change(admin: Admin, row: str) -> None:
    admin.create("orders")
    before = admin.node.image.configs
    kind, name, change, code = BAD_CHANGES[row]
    answer = admin.alter(kind, name, change)
    assert answer.error_code == code
    assert answer.error_message
    assert admin.node.image.configs == before


def test_a_brokers_default_changes_for_all_topics_at_run_time(admin: Admin) -> None:
    admin.create("orders")
    assert admin.alter(BROKER, "", ("log.retention.ms", SET, "7000")).error_code == 0
    assert admin.live.log_config("orders").retention_ms == 7000
    assert admin.alter(BROKER, "1", ("log.retention.ms", SET, "9000")).error_code == 0
    assert admin.live.log_config("orders").retention_ms == 9000
    (entry,) = admin.describe(BROKER, "1", "log.retention.ms").configs
    assert (entry.value, entry.config_source) == ("9000", 2)
    (entry,) = admin.describe(BROKER, "", "log.retention.ms").configs
    assert (entry.value, entry.config_source) == ("7000", 3)


def test_what_cannot_be_described_gets_an_error(admin: Admin) -> None:
    assert admin.describe(TOPIC, "nosuch").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.describe(TOPIC, "no such").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert admin.describe(BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert admin.describe(99, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_metadata_request_creates_what_it_may(admin: Admin) -> None:
    topics = admin.metadata_of("fresh", "../../etc/x", "__remote_log_metadata", "fresh")
    assert [(t.name, t.error_code) for t in topics] == [
        ("fresh", 0),
        ("../../etc/x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__remote_log_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [p.leader_id for p in topics[0].partitions] == [1, 1, 1]
    assert topics[0].topic_id == admin.node.image.topics_by_name["fresh"].id


def test_a_metadata_request_creates_nothing_where_it_may_not(admin: Admin) -> None:
    (topic,) = admin.metadata_of("fresh", allow_auto_topic_creation=False)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.node.image.topics_by_name == {}


def test_metadata_follows_the_image(admin: Admin) -> None:
    admin.create("a")
    assert len(admin.metadata_of("a")[0].partitions) == 1
    admin.delete(("a", ZERO_UUID))
    admin.create("a", num_partitions=2)
    assert len(admin.metadata_of("a")[0].partitions) == 2


def test_an_unknown_id_is_forgotten_only_where_it_is_wished_for(admin: Admin) -> None:
    unknown = b"u" * 16
    (answer,) = admin.delete((None, unknown))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert admin.node.image.removed_tiered_topics == {}
    assert admin.wish(unknown, 1).error_code == 0
    assert list(admin.node.image.removed_tiered_topics) == [unknown]
    assert admin.wish(unknown, 2).error_code == 0
    assert admin.node.image.removed_tiered_topics == {}
    assert admin.wish(unknown, 3).error_code == ErrorCode.INVALID_REQUEST


def test_an_id_that_exists_is_not_forgotten(admin: Admin) -> None:
    admin.create("t")
    topic_id = admin.node.image.topics_by_name["t"].id
    answer = admin.wish(topic_id, 1)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "t" in admin.node.image.topics_by_name
    assert admin.node.image.removed_tiered_topics == {}


def test_a_broker_creates_guarded_topics_itself_and_clients_cannot(admin: Admin) -> None:
    name = "__remote_log_metadata"
    assert admin.create(name)[0].error_code == ErrorCode.POLICY_VIOLATION
    assert asyncio.run(admin.own_topics.create([TopicSpec(name, 1, 1)])) == {}
    refused = asyncio.run(admin.own_topics.create([TopicSpec(name, 1, 1), TopicSpec("a", 0, 1)]))
    assert {one: error.code for one, error in refused.items()} == {
        name: ErrorCode.TOPIC_ALREADY_EXISTS,
        "a": ErrorCode.INVALID_PARTITIONS,
    }


def test_many_topics_are_made_on_the_way_at_once(admin: Admin) -> None:
    """A client hears of more than 50 in an answer that is encoded already."""
    asyncio.run(admin.own_topics.auto_create([f"auto{number}" for number in range(60)]))
    assert len(admin.node.image.topics_by_name) == 60


async def test_topics_on_the_way_have_this_brokers_defaults_and_a_margin() -> None:
    """The controller elsewhere may have others; what it decides in time is not given up."""
    asked: list[tuple[Any, int]] = []

    async def ask(question: Any, timeout_ms: int) -> Any:
        asked.append((question, timeout_ms))
        return response(ApiKey.CREATE_TOPICS).cls(topics=[])

    await AutoTopicCreation(ask, lambda: TopicDefaults(7, 3)).auto_create(["one"])
    ((question, timeout_ms),) = asked
    (topic,) = question.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("one", 7, 3)
    assert timeout_ms == question.timeout_ms + GRACE_MS == DECISION_TIMEOUT_MS + GRACE_MS
