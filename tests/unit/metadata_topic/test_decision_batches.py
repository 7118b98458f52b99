"""Nothing gets into the metadata log that could not be read back, and nothing of what fails."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import build_batch
from metadata_topic.controller.brokers import register_broker, unfence_broker
from metadata_topic.controller.configs import Operation, incremental_alter_configs
from metadata_topic.controller.errors import UnwrittenDecisionError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, encode_record, make
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.batches import read_batches, read_records, value_batch, whole_batches
from metadata_topic.quorum.log.decision_batches import (
    BatchPlace,
    UnwritableDecision,
    decide_and_prepare,
    prepare_decision,
)
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable
from runtime.disk import Buffer, OpenFile
from tests.support.samples.metadata import cluster_of, registration_of
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.metadata_home import Home, records, topics

LIST = "leader.replication.throttled.replicas"
CLUSTER, BROKER, TOPIC = "", "1", "t"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


class Lists:
    """Rules under which every key is a list and every value is allowed."""

    def is_list(self, resource_type: int, key: str) -> bool:
        return True

    def default_of(self, resource_type: int, key: str) -> str | None:
        return None

    def validate(self, *_: object) -> None:
        """Anything goes."""


@dataclass(frozen=True)
class Append:
    value: str
    name: str = LIST
    config_operation: int = Operation.APPEND


@dataclass(frozen=True)
class Resource:
    resource_type: int
    resource_name: str
    configs: tuple[Append, ...]


async def append(node: MetadataNode, kind: int, name: str, value: str) -> ErrorCode:
    resource = Resource(kind, name, (Append(value),))
    answers = await node.submit(
        lambda image: incremental_alter_configs(image, [resource], rules=Lists())
    )
    error = answers[0].error
    return ErrorCode.NONE if error is None else error.code


async def a_broker(node: MetadataNode) -> int:
    epoch = await node.submit(lambda image: register_broker(image, registration_of(1)))
    await node.submit(lambda i: unfence_broker(i, broker_id=1, broker_epoch=epoch))
    return epoch


@pytest.mark.parametrize(("kind", "name"), [(2, TOPIC), (4, BROKER), (4, CLUSTER)])
def test_two_appends_of_24_kb_are_refused_and_the_next_start_works(
    home: Home, kind: int, name: str
) -> None:
    first = ",".join(f"{n}:1" for n in range(3_500))
    second = ",".join(f"{n}:1" for n in range(3_500, 7_000))

    async def work(node: MetadataNode) -> None:
        await a_broker(node)
        await node.submit(topics(TOPIC))
        assert await append(node, kind, name, first) == ErrorCode.NONE
        assert await append(node, kind, name, second) == ErrorCode.INVALID_CONFIG
        await node.snapshot()

    home.life(work)
    image = home.life().image
    assert image.configs[(kind, name)][LIST] == first


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_value_may_have_32767_bytes_and_not_one_more(home: Home, letter: str) -> None:
    longest = letter * (32_767 // len(letter.encode()))

    async def work(node: MetadataNode) -> None:
        await node.submit(topics(TOPIC))
        assert await append(node, 2, TOPIC, longest + letter) == ErrorCode.INVALID_CONFIG
        assert await append(node, 2, TOPIC, longest) == ErrorCode.NONE

    home.life(work)
    assert home.life().image.configs[(2, TOPIC)][LIST] == longest


def config(value: object) -> MetadataRecord:
    return make("ConfigRecord", resource_type=2, resource_name="t", name="x", value=value)


UNWRITABLE = {
    "a string no reader takes": [config("x" * 32_768)],
    "a string that is no text": [config("\ud800")],
    "a number that does not fit": [make("ProducerIdsRecord", broker_id=2**31)],
    "a record larger than a batch": [make("PartitionRecord", replicas=[1] * 20_000)],
    "no struct of this kind": [config(7)],
}


@pytest.mark.parametrize("bad", UNWRITABLE.values(), ids=UNWRITABLE.keys())
@pytest.mark.parametrize("before", [0, 1, 1_000])
def test_a_decision_that_cannot_be_written_leaves_nothing_behind(
    home: Home, bad: list[MetadataRecord], before: int
) -> None:
    """Neither in the log nor in a later image; 1,000 records in front make it a transaction."""
    home.config = MetadataLogConfig(max_batch_bytes=40_000)
    front = topics(*(f"ghost-{n}" for n in range(before)))(MetadataImage()).records

    async def work(node: MetadataNode) -> None:
        await node.submit(topics("t"))
        end, data = node.log_end_offset, home.log.read_bytes()
        configs = node.image.configs
        for _ in range(2):
            with pytest.raises(UnwritableDecision) as caught:
                await node.submit(records([*front, *bad]))
            assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert (node.log_end_offset, home.log.read_bytes()) == (end, data)
        assert node.failure is None
        await node.submit(topics("a"))
        assert set(node.image.topics_by_name) == {"t", "a"}
        assert node.image.configs == configs

    home.life(work)
    assert set(home.life().image.topics_by_name) == {"t", "a"}


class BreaksOnAppend(FaultyDisk):
    """Fails with an error that nobody expects, from a number of appends to the log on."""

    left = -1

    def append(self, file: OpenFile, data: Buffer) -> None:
        if str(file.path).endswith(".log") and self.left >= 0:
            if self.left == 0:
                raise RuntimeError("a bug")
            self.left -= 1
        super().append(file, data)


@pytest.mark.parametrize("whole_batches", range(6))
def test_any_error_after_the_first_byte_ends_the_node(home: Home, whole_batches: int) -> None:
    """A begun transaction must not swallow what is decided after it."""
    home.config = MetadataLogConfig(max_batch_bytes=2_000)
    home.disk = disk = BreaksOnAppend()

    async def work(node: MetadataNode) -> None:
        await node.submit(topics("before"))
        disk.left = whole_batches
        with pytest.raises(DecisionTimedOut, match="may be carried out or not"):
            await node.submit(topics(*(f"ghost-{n}" for n in range(200))))
        assert isinstance(node.failure, RuntimeError)
        assert len(home.failures) == 1
        disk.left = -1
        with pytest.raises(MetadataUnavailable):
            await node.submit(topics("after"))
        assert set(node.image.topics_by_name) == {"before"}

    home.life(work, killed=True)
    for _ in range(2):
        assert set(home.life().image.topics_by_name) == {"before"}


def test_the_image_is_made_of_the_bytes_and_not_of_the_structs() -> None:
    base = cluster_of(1)
    record = make("TopicRecord", name="t", topic_id=bytearray(b"t" * 16))
    prepared = prepare_decision([record], base=base, place=at(base), batch_bytes_max=1000)
    image, _ = prepared.loader.take()
    assert set(image.topics_by_id) == {b"t" * 16}
    assert image.provenance == Provenance(base.provenance.end_offset, 7, 8)


def at(image: MetadataImage) -> BatchPlace:
    end = image.provenance.end_offset
    return BatchPlace(end, epoch=7, timestamp_ms=8, flushed_end=end)


def with_epoch_of(image: MetadataImage, count: int) -> ControllerResult[int]:
    """A registration behind as many other records."""
    registered = register_broker(image, registration_of(1, life=2))
    others = [make("NoOpRecord")] * count
    return ControllerResult((*others, *registered.records), registered.response)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_broker_epoch_is_an_offset_of_its_own_decision(count: int) -> None:
    base = cluster_of()
    epoch, prepared = decide_and_prepare(
        lambda image: with_epoch_of(image, count), base, at(base), batch_bytes_max=400
    )
    assert prepared is not None
    is_split = count == 100
    first = base.provenance.end_offset + is_split
    assert (prepared.first_offset, epoch) == (first, first)
    image, _ = prepared.loader.take()
    assert image.brokers[1].epoch == epoch
    headers = [header for _, header in iter_batches(prepared.data)]
    assert (len(headers) > 1) == is_split
    assert all(header.size_bytes <= 400 for header in headers)
    assert image.provenance.end_offset == headers[-1].next_offset


def test_a_registration_with_an_epoch_of_elsewhere_is_not_written(home: Home) -> None:
    def decide(image: MetadataImage) -> ControllerResult[int]:
        at = image.provenance
        return register_broker(
            replace(image, provenance=replace(at, offset=at.offset + 5)), registration_of(1)
        )

    async def work(node: MetadataNode) -> None:
        end = node.log_end_offset
        with pytest.raises(AssertionError, match="broker epoch"):
            await node.submit(decide)
        assert (node.log_end_offset, node.failure) == (end, None)
        await a_broker(node)

    home.life(work)


def test_each_batch_says_up_to_where_the_log_was_flushed_when_it_was_begun(home: Home) -> None:
    home.config = MetadataLogConfig(max_batch_bytes=2_000)

    ends: list[int] = []

    async def work(node: MetadataNode) -> None:
        ends.append(node.log_end_offset)
        await node.submit(topics("a"))
        ends.append(node.log_end_offset)
        await node.submit(topics(*(f"t{n}" for n in range(200))))

    home.life(work)
    headers = [header for _, header in iter_batches(home.log.read_bytes())]
    (small,) = [one for one in headers if ends[0] <= one.base_offset < ends[1]]
    large = [one for one in headers if one.base_offset >= ends[1]]
    assert small.base_sequence == 0
    assert len(large) > 5
    assert {one.base_offset - one.base_sequence for one in large} == {ends[1]}


BEGIN = make("BeginTransactionRecord", name="x")
END = make("EndTransactionRecord")


def topic(name: str) -> MetadataRecord:
    return make("TopicRecord", name=name, topic_id=name.encode() * 16)


BATCHES = [
    [topic("a"), BEGIN, topic("b")],
    [topic("c"), END, topic("d"), BEGIN],
    [topic("e")],
    [END, topic("f")],
    [topic("g"), BEGIN, make("AbortTransactionRecord"), topic("h")],
]


def images() -> Iterator[tuple[int, MetadataImage]]:
    loader, offset = ImageLoader(MetadataImage()), 0
    for batch in BATCHES:
        for record in batch:
            loader.add(record)
        offset += len(batch)
        loader.end_of_batch(Provenance(offset - 1, 1, 1))
        yield offset, loader.take()[0]


def test_an_image_never_contains_a_part_of_a_batch_or_a_transaction() -> None:
    seen = [(end, image.provenance.end_offset, "".join(image.topics_by_name)) for end, image in
            images()]  # fmt: skip
    assert seen == [(3, 0, ""), (7, 0, ""), (8, 0, ""), (10, 10, "abcdef"), (14, 14, "abcdefgh")]


def test_an_image_and_the_rest_of_the_log_say_nothing_twice() -> None:
    final = list(images())[-1][1]
    for _, image in images():
        loader, offset = ImageLoader(image), 0
        for batch in BATCHES:
            if offset >= image.provenance.end_offset:
                for record in batch:
                    loader.add(record)
                loader.end_of_batch(Provenance(offset + len(batch) - 1, 1, 1))
            offset += len(batch)
        assert loader.take()[0] == final


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_used_up_descriptors_refuse_a_decision_and_the_node_lives(home: Home, error: int) -> None:
    async def work(node: MetadataNode) -> None:
        assert isinstance(home.disk, FaultyDisk)
        home.disk.fail(["append", "open_append", "write_at"], error=error)
        with pytest.raises(UnwrittenDecisionError):
            await node.submit(topics("a"))
        assert (home.failures, node.failure) == ([], None)
        home.disk.heal()
        await node.submit(topics("b"))
        assert set(node.image.topics_by_name) == {"b"}

    home.life(work)
    assert set(home.life().image.topics_by_name) == {"b"}


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_700])
def test_the_bytes_are_those_of_a_batch_that_is_built_at_once(count: int) -> None:
    values = [f"value-{number}".encode() for number in range(count)]
    whole = build_batch([(77, None, value, ()) for value in values], base_offset=9, leader_epoch=3)
    steps = value_batch(values, base_offset=9, epoch=3, timestamp_ms=77)
    assert steps == whole


def test_records_are_read_one_by_one_as_they_are_read_at_once() -> None:
    records = [make("TopicRecord", name=f"t{n}", topic_id=bytes([n]) * 16) for n in range(20)]
    data = bytearray()
    for start in (0, 10):
        values = [encode_record(record) for record in records[start : start + 10]]
        data += value_batch(values, base_offset=start, epoch=1, timestamp_ms=5)
    one_by_one = [
        record for position, _ in whole_batches(data) for record in read_records(data, position)
    ]
    at_once = [record for batch in read_batches(data) for record in batch.records]
    assert one_by_one == at_once == records


def test_records_that_are_a_transaction_are_split_without_another_one() -> None:
    """The bootstrap records, where a batch holds none of them beside another."""
    levels = [
        make("FeatureLevelRecord", name=f"feature-{n}", feature_level=n + 1) for n in range(9)
    ]
    whole = (make("BeginTransactionRecord"), *levels, make("EndTransactionRecord"))
    image = MetadataImage()
    prepared = prepare_decision(
        whole, base=image, place=BatchPlace(0, 1, 0, 0), batch_bytes_max=120
    )
    batches = list(read_batches(bytes(prepared.data)))
    assert len(batches) > 1
    after, _ = prepared.loader.take()
    assert after.features == {f"feature-{n}": n + 1 for n in range(9)}
    assert after.provenance.end_offset == len(whole)
