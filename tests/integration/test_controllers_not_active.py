"""A controller that does not lead refuses changes with NOT_CONTROLLER (41), in every version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.quorum.kept_brokers import registration
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

pytestmark = pytest.mark.lasts(seconds=20)

PATIENCE_S = 10.0


def _create(_version: int) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in "ab"]
    }


def _delete(version: int) -> dict[str, Any]:
    if version < 6:
        return {"topic_names": ["a", "b"], "timeout_ms": 1000}
    return {"topics": [{"name": name} for name in "ab"], "timeout_ms": 1000}


def _alter(_version: int) -> dict[str, Any]:
    change = {"name": "retention.ms", "config_operation": 0, "value": "7"}
    return {
        "resources": [
            {"resource_type": 2, "resource_name": name, "configs": [change]} for name in "ab"
        ]
    }


def _grow(_version: int) -> dict[str, Any]:
    return {"topics": [{"name": name, "count": 9, "assignments": None} for name in "ab"]}


def _replace(_version: int) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "7"}]
    return {
        "resources": [
            {"resource_type": 2, "resource_name": name, "configs": configs} for name in "ab"
        ]
    }


def _register(version: int) -> dict[str, Any]:
    fields = registration(101, b"i" * 16)
    return fields if version >= 2 else {k: v for k, v in fields.items() if k != "log_dirs"}


def _beat(_version: int) -> dict[str, Any]:
    return {"broker_id": 101, "broker_epoch": 1, "current_metadata_offset": 1}


def _unregister(_version: int) -> dict[str, Any]:
    return {"broker_id": 101}


def _of_topics(answer: Any) -> list[int]:
    return [one.error_code for one in answer.topics]


def _of_results(answer: Any) -> list[int]:
    return [one.error_code for one in answer.results]


def _of_responses(answer: Any) -> list[int]:
    return [one.error_code for one in answer.responses]


def _whole(answer: Any) -> list[int]:
    return [answer.error_code]


CHANGES: list[tuple[ApiKey, range, Callable[[int], dict[str, Any]], Callable[[Any], list[int]]]] = [
    (ApiKey.CREATE_TOPICS, range(2, 8), _create, _of_topics),
    (ApiKey.DELETE_TOPICS, range(1, 7), _delete, _of_responses),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), _alter, _of_responses),
    (ApiKey.CREATE_PARTITIONS, range(4), _grow, _of_results),
    (ApiKey.ALTER_CONFIGS, range(3), _replace, _of_responses),
    (ApiKey.BROKER_REGISTRATION, range(5), _register, _whole),
    (ApiKey.BROKER_HEARTBEAT, range(3), _beat, _whole),
    (ApiKey.UNREGISTER_BROKER, range(1), _unregister, _whole),
]


async def test_a_follower_refuses_each_change_in_each_version(tmp_path: Path) -> None:
    async with Quorum(tmp_path, Plan(TidemarkController, False, has_links=False)) as quorum:
        leader = await quorum.settled()
        before = leader.epoch
        for node_id in quorum.controllers:
            if node_id == leader.node_id:
                continue
            talk = quorum.talk(node_id)
            for api, versions, fields, codes in CHANGES:
                for version in versions:
                    answer = await talk.ask(
                        api, fields(version), timeout_s=PATIENCE_S, version=version
                    )
                    found = codes(answer)
                    assert set(found) == {ErrorCode.NOT_CONTROLLER}, f"{api.name} {version}"
        assert (await quorum.leader()).epoch == before
