"""Steps that many stories have: joining, syncing, committing.

`version` of a step is that of its own API; where it does not matter it is the newest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.common import VERSIONS
from tests.support.differential.groups.talk import Talk, subscription

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COMMIT, FETCH, DELETE = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE
DESCRIBE, LIST, DROP = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS
FIND = ApiKey.FIND_COORDINATOR
NEW_PROTOCOL = ApiKey.CONSUMER_GROUP_HEARTBEAT

OF_GROUPS = (
    COMMIT,
    FETCH,
    FIND,
    JOIN,
    BEAT,
    LEAVE,
    SYNC,
    DESCRIBE,
    LIST,
    DROP,
    DELETE,
    NEW_PROTOCOL,
)

LONG_MS = 60_000
RANGE = [{"name": "range", "metadata": subscription("g-one")}]
ROUND_ROBIN = [{"name": "roundrobin", "metadata": subscription("g-one")}]
TOPIC, SECOND = "g-one", "g-two"

Told = Callable[[Talk], None]


@dataclass(frozen=True)
class Story:
    """A named conversation in one version of the API that it is about."""

    name: str
    version: int
    tell: Told

    @property
    def group(self) -> str:
        return f"{self.name}-v{self.version}".replace(" ", "-")


def in_each_version(
    api_key: ApiKey, name: str, tell: Callable[[Talk, int], None], low: int = 0
) -> Iterator[Story]:
    """The story in each served version of an API, from `low` on."""
    for version in VERSIONS[api_key]:
        if version >= low:
            yield Story(name, version, partial(_tell, tell, version))


def _tell(tell: Callable[[Talk, int], None], version: int, talk: Talk) -> None:
    tell(talk, version)


def send_join(talk: Talk, who: str, version: int = 9, **fields: Any) -> None:
    """Send JoinGroup; an answer that only gives a member id is taken, and JoinGroup sent again."""
    me = talk.member(who)
    me.instance = fields.get("group_instance_id", me.instance)
    asked = {
        "group_id": talk.group,
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "member_id": me.member_id,
        "group_instance_id": me.instance,
        "protocol_type": "consumer",
        "protocols": RANGE,
    } | fields
    talk.send(who, JOIN, version, **asked)
    if version >= 4 and not asked["member_id"] and asked["group_instance_id"] is None:
        answer = talk.receive(who)
        if getattr(answer, "error_code", -1) == ErrorCode.MEMBER_ID_REQUIRED:
            me.member_id = answer.member_id
            talk.send(who, JOIN, version, **asked | {"member_id": me.member_id})
        else:
            me.early.append(answer)


def joined(talk: Talk, who: str) -> Any:
    """Take the answer of JoinGroup, and remember the place that it gives."""
    answer = talk.receive(who)
    if getattr(answer, "error_code", -1) == 0:
        me = talk.member(who)
        me.member_id, me.generation = answer.member_id, answer.generation_id
    return answer


def join(talk: Talk, who: str, version: int = 9, **fields: Any) -> Any:
    """JoinGroup of a member that nobody makes wait."""
    send_join(talk, who, version, **fields)
    return joined(talk, who)


def send_sync(talk: Talk, who: str, version: int = 5, to: Any = (), **fields: Any) -> None:
    """Send SyncGroup; `to` names the members that get an assignment, `who: name of client`."""
    me = talk.member(who)
    asked = {
        "group_id": talk.group,
        "generation_id": me.generation,
        "member_id": me.member_id,
        "group_instance_id": me.instance,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": talk.member(name).member_id, "assignment": b"for " + name.encode()}
            for name in to
        ],
    } | fields
    talk.send(who, SYNC, version, **asked)


def sync(talk: Talk, who: str, version: int = 5, to: Any = (), **fields: Any) -> Any:
    """SyncGroup with its answer."""
    send_sync(talk, who, version, to, **fields)
    return talk.receive(who)


def beat(talk: Talk, who: str, version: int = 4, **fields: Any) -> Any:
    """Heartbeat of a member."""
    me = talk.member(who)
    asked = {
        "group_id": talk.group,
        "generation_id": me.generation,
        "member_id": me.member_id,
        "group_instance_id": me.instance,
    } | fields
    return talk.ask(who, BEAT, version, **asked)


def leave(talk: Talk, who: str, version: int = 5, **fields: Any) -> Any:
    """LeaveGroup of one member."""
    me = talk.member(who)
    one = {"member_id": me.member_id, "group_instance_id": me.instance}
    asked = {"group_id": talk.group, "member_id": me.member_id, "members": [one]} | fields
    return talk.ask(who, LEAVE, version, **asked)


def commit(talk: Talk, who: str, version: int = 9, offset: int = 5, **fields: Any) -> Any:
    """OffsetCommit of partition 0 of the topic."""
    me = talk.member(who)
    asked = {
        "group_id": talk.group,
        "generation_id_or_member_epoch": me.generation,
        "member_id": me.member_id,
        "group_instance_id": me.instance,
        "topics": [talk.topic(TOPIC, partitions=[committed(0, offset)])],
    } | fields
    return talk.ask(who, COMMIT, version, **asked)


def committed(
    partition: int, offset: int, metadata: str | None = "m", **more: Any
) -> dict[str, Any]:
    """One partition of an OffsetCommit."""
    named = {"partition_index": partition, "committed_offset": offset}
    return named | {"committed_metadata": metadata} | more


def fetch(talk: Talk, who: str = "reader", version: int = 9, topics: Any = (), **more: Any) -> Any:
    """OffsetFetch of a group in the form of its version; no topics named: partition 0 of one."""
    if topics == ():
        topics = [talk.topic(TOPIC, partition_indexes=[0])]
    one = {"group_id": talk.group, "topics": topics}
    return talk.ask(who, FETCH, version, **(one | {"groups": [one]} | more))


def describe(talk: Talk, version: int = 6, **fields: Any) -> Any:
    """DescribeGroups of the group."""
    return talk.ask("reader", DESCRIBE, version, **({"groups": [talk.group]} | fields))


def stable(talk: Talk, *names: str, **fields: Any) -> None:
    """A stable group of these members; the first of them leads."""
    first, *others = names
    join(talk, first, **fields)
    if others:
        for name in others:
            send_join(talk, name, **fields)
            talk.parked(name)
        send_join(talk, first, **fields)
        for name in names:
            joined(talk, name)
    for name in others:
        send_sync(talk, name)
        talk.parked(name)
    send_sync(talk, first, to=names)
    for name in names:
        talk.receive(name)
