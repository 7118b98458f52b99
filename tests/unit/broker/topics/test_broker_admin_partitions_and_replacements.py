"""CreatePartitions and AlterConfigs through their handlers."""

import asyncio
from pathlib import Path

import pytest

from broker.topics.creation import BACKLOG_MAX
from kafka_protocol.errors import ApiError, ErrorCode
from metadata_topic.controller.topic_specs import TopicSpec
from tests.support.worlds.admin import BROKER, SET, TOPIC, Admin

STORE = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "a:B",
}


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin({}, tmp_path)


def partitions_of(admin: Admin, topic: str) -> int:
    return len(admin.node.image.topics_by_name[topic].partitions)


# -- CreatePartitions


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_in_each_version(admin: Admin, version: int) -> None:
    admin.create("orders")
    answer = admin.grow(("orders", 3), ("nobody", 3), version=version)
    assert {one.name: one.error_code for one in answer.results} == {"orders": 0, "nobody": 3}
    assert partitions_of(admin, "orders") == 3


def test_very_many_names_are_answered_in_every_version(admin: Admin) -> None:
    names = [f"t{n}" for n in range(1_500)]
    for version in range(4):
        answer = admin.grow(*((name, 2) for name in names), version=version)
        assert [one.name for one in answer.results] == names
        assert {one.error_code for one in answer.results} == {3}


def test_a_guarded_topic_does_not_grow_and_others_do(admin: Admin) -> None:
    guarded = ("__remote_log_metadata", "__cluster_metadata", "__consumer_offsets")
    asyncio.run(admin.creation.create([TopicSpec(guarded[0], 1, 1)]))
    admin.create("orders")
    answer = admin.grow(*((name, 2) for name in guarded), ("orders", 2))
    assert [one.error_code for one in answer.results] == [44, 44, 44, 0]
    assert partitions_of(admin, guarded[0]) == 1
    assert partitions_of(admin, "orders") == 2


def test_no_topic_grows_beyond_the_descriptors_of_its_broker(admin: Admin) -> None:
    admin.create("a")
    admin.descriptors.by_broker = {1: 3}
    assert admin.grow(("a", 3)).results[0].error_code == 0
    assert admin.grow(("a", 4), validate_only=True).results[0].error_code == 0
    refused = admin.grow(("a", 5)).results[0]
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "ulimit -n" in refused.error_message
    assert admin.grow(("a", 4)).results[0].error_code == 0, "what is only checked takes none"


@pytest.mark.parametrize("version", range(4))
def test_no_topic_grows_while_the_disks_are_far_behind(admin: Admin, version: int) -> None:
    admin.create("a")
    admin.backlog = BACKLOG_MAX
    answer = admin.grow(("a", 2), version=version)
    known = ErrorCode.THROTTLING_QUOTA_EXCEEDED if version >= 3 else ErrorCode.REQUEST_TIMED_OUT
    assert answer.results[0].error_code == known
    assert answer.throttle_time_ms > 0
    assert partitions_of(admin, "a") == 1


async def test_an_answer_waits_until_the_new_partitions_are_served(admin: Admin) -> None:
    await admin.creation.create([TopicSpec("a", 1, 1)])
    (topic_id,) = admin.node.image.topics_by_id
    asked: list[list[bytes]] = []
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(ids: list[bytes]) -> asyncio.Future[None]:
        asked.append(ids)
        return served

    admin.creation._settled = settled
    spec = Growing("a", 2)
    waiting = asyncio.ensure_future(admin.creation.create_partitions([spec], timeout_ms=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (asked, waiting.done()) == ([[topic_id]], False)
    served.set_result(None)
    assert [one.error for one in await waiting] == [None]


class Growing:
    """A topic of a request, without replicas."""

    assignments = None

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count


# -- AlterConfigs


def test_a_replacement_is_in_force_and_forgets_what_it_does_not_name(admin: Admin) -> None:
    admin.create("orders", configs={"cleanup.policy": "compact", "segment.bytes": "2000000"})
    changed = admin.replace(TOPIC, "orders", {"retention.ms": "5", "segment.bytes": "2000000"})
    assert (changed.error_code, changed.error_message) == (0, None)
    assert admin.node.image.topic_config("orders") == {
        "retention.ms": "5",
        "segment.bytes": "2000000",
    }
    config = admin.live.log_config("orders")
    assert (config.retention_ms, config.cleanup_policy) == (5, frozenset({"delete"}))


def test_a_brokers_settings_are_replaced_too(admin: Admin) -> None:
    for name in ("", "1"):
        admin.alter(BROKER, name, ("log.retention.ms", SET, "7000"))
        changed = admin.replace(BROKER, name, {"log.segment.bytes": "2000000"})
        assert changed.error_code == 0
        assert admin.node.image.configs[BROKER, name] == {"log.segment.bytes": "2000000"}


def test_what_is_only_checked_is_not_replaced(admin: Admin) -> None:
    admin.create("orders", configs={"retention.ms": "5"})
    assert admin.replace(TOPIC, "orders", {}, validate_only=True).error_code == 0
    assert admin.node.image.topic_config("orders") == {"retention.ms": "5"}


BAD_REPLACEMENTS = {
    "unknown topic": (TOPIC, "nosuch", {"retention.ms": "1"}, 3),
    "unknown key": (TOPIC, "tiered", {"no.such": "1"}, 40),
    "wrong value": (TOPIC, "tiered", {"retention.ms": "soon"}, 40),
    "null": (TOPIC, "tiered", {"retention.ms": None}, 42),
    "old and new name": (
        TOPIC,
        "tiered",
        {"local.log.retention.ms": "1", "local.retention.ms": "2"},
        42,
    ),
    "tiering not named": (TOPIC, "tiered", {"retention.ms": "1"}, 40),
    "read-only": (BROKER, "1", {"node.id": "4"}, 42),
    "logger": (8, "1", {"a": "INFO"}, 42),
    "cluster": (TOPIC, "__cluster_metadata", {"retention.ms": "1"}, 44),
    "remote": (TOPIC, "__remote_log_metadata", {"retention.ms": "-1"}, 44),
    "remote, nothing": (TOPIC, "__remote_log_metadata", {}, 44),
}


@pytest.mark.parametrize("row", BAD_REPLACEMENTS)
def test_bad_replacement(tmp_path: Path, row: str) -> None:
    admin = Admin(STORE, tmp_path)
    (made,) = admin.create("tiered", configs={"remote.storage.enable": "true"})
    assert made.error_code == 0, made.error_message
    before = admin.node.image.configs
    kind, name, configs, code = BAD_REPLACEMENTS[row]
    answer = admin.replace(kind, name, configs)
    assert answer.error_code == code, answer.error_message
    assert answer.error_message
    assert admin.node.image.configs == before


def test_a_metadata_log_that_takes_nothing_is_told(admin: Admin) -> None:
    admin.node.broken = ApiError(ErrorCode.NOT_CONTROLLER, "the disk failed")
    assert [one.error_code for one in admin.grow(("a", 2)).results] == [41]
    assert admin.replace(TOPIC, "a", {}).error_code == 41
