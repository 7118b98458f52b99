"""`tidemark remote forget` under controllers that keep no list: each broker notes it for itself."""

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.remote_data_wishes import RemoteDataWishes
from broker.network.registry import DecodedHandler, RequestContext
from broker.remote.removed_topics import FILE_NAME, RemovedTopicsFile
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.topic_deletion import RemoteDataWish
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import make
from metadata_topic.image.replay import replay_all
from runtime.executors import InlinePool
from tests.support.sim.faulty_disk import FaultyDisk

LIVING, GONE = b"l" * 16, b"g" * 16
FORGET, KEEP, NOTHING = RemoteDataWish.FORGET, RemoteDataWish.KEEP, RemoteDataWish.NOTHING
TOPICS = codec.request(ApiKey.DELETE_TOPICS).cls.Topics


class There(DecodedHandler):
    """The way to the active controller; counts what continues."""

    api_key, versions = ApiKey.DELETE_TOPICS, Versions(1, 6)
    asked = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.asked += 1
        return "there"


class World:
    def __init__(self, directory: Path) -> None:
        self.there, self.disk, self.serves = There(), FaultyDisk(), False
        self.removed = RemovedTopicsFile(directory, "c", self.disk, InlinePool())
        topic = make("TopicRecord", name="living", topic_id=LIVING)
        image, _ = replay_all(EMPTY_IMAGE, [topic], Provenance(1, 1, 1))
        active: Any = type("", (), {"serves": lambda _self, _key: self.serves})()
        cluster = ClusterView(1, "c", lambda: image)
        self.handler = RemoteDataWishes(self.there, active, cluster, self.removed)

    async def ask(self, *topics: tuple[str | None, bytes, int]) -> Any:
        context = RequestContext(ApiKey.DELETE_TOPICS, 6, 0, "c", "", ("", 0), 0)
        asked = [TOPICS(name=n, topic_id=i, remote_data=int(wish)) for n, i, wish in topics]
        request = codec.request(ApiKey.DELETE_TOPICS).cls(topics=asked, timeout_ms=1_000)
        return await self.handler.handle(context, request)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_wish_is_noted_and_taken_back(world: World) -> None:
    (answer,) = (await world.ask((None, GONE, FORGET))).responses
    assert (answer.error_code, answer.topic_id, answer.name) == (0, GONE, None)
    assert world.removed.keep() == [GONE]
    (answer,) = (await world.ask((None, GONE, KEEP))).responses
    assert answer.error_code == 0
    assert world.removed.keep() == []
    assert world.there.asked == 0


@pytest.mark.parametrize(
    ("serves", "topics"),
    [
        (True, [(None, GONE, FORGET)]),
        (None, [(None, GONE, FORGET)]),
        (False, [(None, LIVING, NOTHING)]),
        (False, [("living", ZERO_UUID, NOTHING)]),
    ],
)
async def test_all_else_goes_to_the_controller(
    world: World, serves: bool | None, topics: list[tuple[str | None, bytes, int]]
) -> None:
    world.serves = serves  # type: ignore[assignment]
    assert await world.ask(*topics) == "there"
    assert world.removed.keep() == []


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ((None, LIVING, FORGET), "what exists is not forgotten"),
        ((None, GONE, 7), "RemoteData=7"),
        (("living", ZERO_UUID, NOTHING), "Topics are not deleted in a request"),
    ],
)
async def test_a_wrong_wish_is_refused(
    world: World, topic: tuple[str | None, bytes, int], text: str
) -> None:
    responses = (await world.ask((None, b"o" * 16, FORGET), topic)).responses
    (refused,) = [one for one in responses if one.error_code]
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert text in refused.error_message
    assert world.removed.keep() == [b"o" * 16]


async def test_a_wish_that_cannot_be_written_is_refused(world: World) -> None:
    world.disk.fail(["rename"], path_part=FILE_NAME)
    (answer,) = (await world.ask((None, GONE, FORGET))).responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
