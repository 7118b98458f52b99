"""ListConfigResources: which names are listed, for which types, and long lists in turns."""

import asyncio
from dataclasses import replace

import pytest

from broker.handlers.list_config_resources import ListConfigResourcesHandler
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import Endpoint, TopicImage
from metadata_topic.image.records import make
from metadata_topic.image.sorted_map import SortedMap
from tests.support.samples.metadata import apply, cluster_of
from tests.support.worlds.data_plane import call, finish, start


def handler_of(image: MetadataImage) -> ListConfigResourcesHandler:
    return ListConfigResourcesHandler(ClusterView(1, "unused", lambda: image))


def listed(image: MetadataImage, *types: int) -> list[tuple[int, str]]:
    answer = call(handler_of(image), 1, {"resource_types": list(types)})
    assert answer.error_code == ErrorCode.NONE
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


def with_config(image: MetadataImage, kind: int, name: str, value: str | None) -> MetadataImage:
    record = make("ConfigRecord", resource_type=kind, resource_name=name, name="a", value=value)
    return apply(image, [record])


def test_groups_and_subscriptions_are_listed_while_they_have_settings() -> None:
    group, subscription = ResourceType.GROUP, ResourceType.CLIENT_METRICS
    image = cluster_of(1)
    for kind, name in ((group, "g"), (group, "h"), (subscription, "s"), (ResourceType.TOPIC, "z")):
        image = with_config(image, kind, name, "b")
    assert listed(image, group) == [(32, "g"), (32, "h")]
    assert listed(image, subscription) == [(16, "s")]
    image = with_config(image, group, "g", None)
    assert listed(image, group, subscription) == [(32, "h"), (16, "s")]


def test_brokers_of_the_listener_are_listed_fenced_ones_too() -> None:
    image = cluster_of(1, 2, 3)
    elsewhere = replace(image.brokers[3], endpoints=(Endpoint("OTHER", "localhost", 1),))
    brokers = {**image.brokers, 2: replace(image.brokers[2], fenced=True), 3: elsewhere}
    image = replace(image, brokers=brokers)
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        assert listed(image, kind) == [(kind, "1"), (kind, "2")]


def test_a_type_asked_for_twice_is_listed_once() -> None:
    assert listed(cluster_of(1), 4, 4) == [(4, "1")]


@pytest.mark.parametrize("types", [[0], [-1], [2, 3], [99, 98]])
def test_bad_input_a_type_that_does_not_exist_refuses_all(types: list[int]) -> None:
    answer = call(handler_of(cluster_of(1)), 1, {"resource_types": types})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_many_topics_are_listed_in_turns() -> None:
    names = [f"topic-{number:05}" for number in range(20_000)]
    topics = SortedMap.of({name: TopicImage(name, name.encode(), {}) for name in names})
    handler = handler_of(replace(cluster_of(1), topics_by_name=topics))
    answer = asyncio.ensure_future(start(handler, 1, {"resource_types": [ResourceType.TOPIC]}))
    count = 0
    while not answer.done():
        await asyncio.sleep(0)
        count += 1
    resources = finish(handler, 1, await answer).config_resources
    assert [one.resource_name for one in resources] == names
    assert count > 10
