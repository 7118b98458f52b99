"""Options of a query, table by table: what is read, what is refused, and in which words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.primitives import uuid_to_text
from pipeline.errors import OptionError
from pipeline.spark.limits import Rates
from pipeline.spark.options import Topics, batch_options, looks_like_reading, stream_options
from pipeline.spark.options_bounds import AtOffsets, AtTimes, Everywhere
from pipeline.spark.options_values import from_map, to_map
from pipeline.values import Isolation, SplitLimits, StoreAddress

CLUSTER = {"kafka.bootstrap.servers": "localhost:9092"}
READ = {**CLUSTER, "subscribe": "orders"}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = batch_options(READ), stream_options(READ)
    assert batch.starting is Everywhere.EARLIEST
    assert batch.ending is Everywhere.LATEST
    assert stream.starting is Everywhere.LATEST
    for one in (batch, stream):
        assert one.where.fail_on_data_loss
        assert one.where.isolation is Isolation.READ_UNCOMMITTED
        assert one.rates == Rates(None, None, 900_000)
        assert one.limits == SplitLimits()
        assert one.columns is None
        assert not one.include_headers
        assert not one.push_filters
        assert not one.warnings


def test_names_are_read_in_any_case() -> None:
    read = stream_options(
        {
            "KAFKA.Bootstrap.Servers": "localhost:9092",
            "SUBSCRIBE": "orders",
            "maxoffsetspertrigger": "7",
            "FailOnDataLoss": "FALSE",
        }
    )
    assert read.rates.most == 7
    assert not read.where.fail_on_data_loss


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": "b, a,,b"}, Topics(subscribed=("a", "b"))),
        ({"assign": '{"orders":[1,0]}'}, Topics(assigned=(P0, P1))),
    ],
)
def test_topics_are_named_by_one_of_three_options(options: dict[str, str], topics: Topics) -> None:
    assert batch_options({**CLUSTER, **options}).topics == topics


def test_a_pattern_matches_whole_names() -> None:
    pattern = batch_options({**CLUSTER, "subscribePattern": r" or\w+ "}).topics.pattern
    assert pattern is not None
    assert pattern.fullmatch("orders")
    assert not pattern.fullmatch("old-orders")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of assign, subscribe, subscribePattern must be given; none is given"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "given are assign, subscribe"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"subscribePattern": " "}, "option subscribePattern is empty"),
        ({"assign": "orders"}, 'option assign=orders: expected e.g. {"topicA":[0,1]'),
        ({"assign": '{"a":[-1]}'}, "expected e.g."),
        ({"assign": '{"a":[true]}'}, "expected e.g."),
        ({"assign": '{"a":[]}'}, "must name at least one partition"),
        ({"assign": '{"a":[0,0]}'}, "none twice"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "nonsense": "1"}, "there is no option 'nonsense'"),
        ({"subscribe": "a", "SUBSCRIBE": "b"}, "option subscribe is given twice"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "failOnDataLoss=no: must be true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions=0: must be a whole number"),
        ({"subscribe": "a", "minPartitions": "2147483648"}, "from 1 to 2147483647"),
        ({"subscribe": "a", "minPartitions": "many"}, "must be a whole number from 1"),
        ({"subscribe": "a", "maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition=-5"),
        ({"subscribe": "a", "targetSplitBytes": "big"}, "must be a size, for example 128m"),
        ({"subscribe": "a", "targetSplitBytes": "0"}, "must be a size"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "must be a time, for example 15m"),
        (
            {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9: is more than maxOffsetsPerTrigger=8",
        ),
        ({"subscribe": "a", "columns": " "}, "option columns names none"),
        ({"subscribe": "a", "columns": "key", "includeHeaders": "true"}, "does not name headers"),
        ({"subscribe": "a", "kafka.isolation.level": "dirty"}, "read_uncommitted, read_committed"),
        ({"subscribe": "a", "kafka.isolaton.level": "x"}, "did you mean kafka.isolation.level?"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "give startingOffsets instead"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "nothing is committed"),
        ({"subscribe": "a", "kafka.enable.partition.eof": "true"}, "is not supported"),
        ({"subscribe": "a", "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "values are bytes"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "may change records"),
        ({"subscribe": "a", "startingTimestamp": "yesterday"}, "must be a whole number from 0"),
        ({"subscribe": "a", "startingOffsets": "first"}, 'expected e.g. {"topicA":{"0":23'),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "a-0 must be at least -2"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":3}}'}, "expected e.g."),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":%s}}' % ("1" * 5_000)}, "expected e.g."),
        (
            {"subscribe": "a", "startingOffsets": '{"a":{"0":9223372036854775808}}'},
            "a-0 must be at most 9223372036854775807",
        ),
        ({"subscribe": "a", "targetSplitBytes": "1" * 5_000}, "must be a size, for example 128m"),
        ({"subscribe": "a", "targetSplitBytes": "٣m"}, "must be a size, for example 128m"),
        ({"subscribe": "a", "maxTriggerDelay": "1" * 5_000 + "s"}, "must be a time, for example"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1.5}}'}, "expected e.g."),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1,"0":2}}'}, "a key is given twice"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":1,"00":2}}'}, "a-0 is given twice"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "at least 0"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "near"}, "error, latest"),
        ({"subscribe": "a", "tidemark.topicId": '{"a":"short"}'}, "no uuid of 22 base64url"),
        ({"subscribe": "a", "tidemark.logStart": '{"a":5}'}, "expected e.g."),
        (
            {"subscribe": "b,a", "tidemark.logStart": '{"A":{"0":5}}'},
            "tidemark.logStart names topic 'A', which is not read: read are a, b",
        ),
        (
            {"assign": '{"a":[0]}', "tidemark.topicId": '{"b":"AAAAAAAAAAAAAAAAAAAAAQ"}'},
            "tidemark.topicId names topic 'b', which is not read: read are a",
        ),
        (
            {"subscribePattern": "a.*", "tidemark.logStart": '{"ab":{"0":5},"ba":{"0":5}}'},
            "tidemark.logStart names topic 'ba', which subscribePattern does not match",
        ),
        (
            {"subscribe": "a", "rsm.config.bucket": "b"},
            "give remote.log.storage.manager.class.name",
        ),
        (
            {
                "subscribe": "a",
                "tidemark.bucket": "/x",
                "remote.log.storage.manager.class.name": "y",
            },
            "not both",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch_options({**CLUSTER, **options})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_cluster_and_a_store_there_is_nothing_to_read() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be given .*bucket"):
        batch_options({"subscribe": "a"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot start there"),
        ({"endingOffsets": "EARLIEST"}, "a batch cannot end there"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "orders-0 cannot start at latest"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "orders-0 cannot end at earliest"),
        (
            {
                "startingOffsets": '{"orders":{"0":1,"2":0}}',
                "endingOffsets": '{"orders":{"0":2,"1":2}}',
            },
            "endingOffsets: differs from startingOffsets: missing orders-2; not there: orders-1",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "orders-0 starts at 5, behind its end 4",
        ),
        (
            {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":0}}'},
            "orders-0 starts at 1, behind its end 0",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
                "endingOffsetsByTimestamp": '{"orders":{"0":4}}',
            },
            "orders-0 starts at 5, behind its end 4",
        ),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "is after endingTimestamp=4"),
    ],
)
def test_bounds_that_no_batch_can_have_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        batch_options({**READ, **options})


def test_bounds_that_meet_are_right() -> None:
    batch_options({**READ, "startingTimestamp": "5", "endingTimestamp": "5"})
    same = '{"orders":{"0":5}}'
    batch_options({**READ, "startingOffsets": same, "endingOffsets": same})
    batch_options({**READ, "startingOffsets": same, "endingOffsets": '{"orders":{"0":-1}}'})
    rates = stream_options({**READ, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"}).rates
    assert (rates.least, rates.most) == (5, 5)


@pytest.mark.parametrize("name", ["endingOffsets", "endingoffsetsbytimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match="for batches only"):
        stream_options({**READ, name: "1"})


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"startingOffsets": " Earliest "}, Everywhere.EARLIEST),
        ({"startingOffsets": '{"orders":{"0":3,"1":-2}}'}, AtOffsets({P0: 3, P1: -2})),
        ({"startingTimestamp": "12"}, AtTimes(None, 12, or_latest=False)),
        (
            {"startingTimestamp": "12", "startingOffsetsByTimestampStrategy": "LATEST"},
            AtTimes(None, 12, or_latest=True),
        ),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":9}}'}, AtTimes({P0: 9})),
        (
            {
                "startingOffsets": "earliest",
                "startingOffsetsByTimestamp": '{"orders":{"0":9}}',
                "startingTimestamp": "12",
            },
            AtTimes(None, 12),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders":{"0":9}}'},
            AtTimes({P0: 9}),
        ),
    ],
)
def test_a_start_is_a_time_before_it_is_an_offset(options: dict[str, str], bound: object) -> None:
    assert batch_options({**READ, **options}).starting == bound


def test_a_time_that_nothing_reaches_means_the_latest_offset_at_the_end() -> None:
    assert batch_options({**READ, "endingTimestamp": "5"}).ending == AtTimes(
        None, 5, or_latest=True
    )


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"targetSplitBytes": "64m"}, SplitLimits(target_bytes=64 << 20)),
        ({"targetSplitBytes": "1000"}, SplitLimits(target_bytes=1000)),
        ({"minPartitions": "40"}, SplitLimits(splits_min=40)),
        ({"maxRecordsPerPartition": "1000"}, SplitLimits(offsets_max=1000)),
    ],
)
def test_splits_are_cut_as_the_user_says(options: dict[str, str], limits: SplitLimits) -> None:
    assert batch_options({**READ, **options}).limits == limits


def test_options_without_effect_are_warnings() -> None:
    some = {
        "groupIdPrefix": "x",
        "kafka.group.id": "y",
        "fetchOffset.numRetries": "3",
        "kafkaConsumer.pollTimeoutMs": "1",
        "kafka.max.poll.records": "500",
        "tidemark.logStart": '{"orders":{"0":1}}',
    }
    batch = batch_options({**READ, **some, "maxOffsetsPerTrigger": "5"})
    assert len(batch.warnings) == len(some) + 1
    assert "option kafka.group.id has no effect here: the source joins no group" in batch.warnings
    assert "option maxOffsetsPerTrigger has no effect in a batch" in batch.warnings
    stream = stream_options({**READ, "pushFilters": "true"})
    assert stream.warnings == ("option pushFilters has no effect in a stream",)


def test_the_client_gets_its_settings_and_only_those() -> None:
    where = batch_options(
        {
            **READ,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.jaas.config": "secret",
            "kafka.client.id": "me",
            "kafka.group.id": "g",
            "kafka.fetch.min.bytes": "1",
            "kafka.isolation.level": "READ_COMMITTED",
        }
    ).where
    assert where.isolation is Isolation.READ_COMMITTED
    assert where.cluster is not None
    assert where.cluster.bootstrap == "localhost:9092"
    assert where.cluster.client == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "secret",
        "client.id": "me",
    }


def test_no_secret_is_shown() -> None:
    read = batch_options(
        {
            **READ,
            "kafka.sasl.jaas.config": "hush-1",
            "remote.log.storage.manager.class.name": "a.b:C",
            "rsm.config.secret.access.key": "hush-2",
        }
    )
    assert "hush" not in repr(read)


def test_a_store_is_said_by_its_settings_or_by_one_url() -> None:
    named = batch_options(
        {
            "subscribe": "a",
            "remote.log.storage.manager.class.name": "a.b:C",
            "rsm.config.bucket": "tier",
        }
    ).where
    assert named.cluster is None
    assert named.store == StoreAddress("a.b:C", {"bucket": "tier"})
    by_url = batch_options(
        {
            "subscribe": "a",
            "tidemark.bucket": "s3://tier/logs",
            "rsm.config.endpoint.url": "http://localhost:4566",
        }
    ).where.store
    assert by_url is not None
    assert by_url.settings == {
        "bucket": "tier",
        "prefix": "logs",
        "endpoint.url": "http://localhost:4566",
    }


def test_ids_and_log_starts_are_maps() -> None:
    topic_id = bytes(range(16))
    where = batch_options(
        {
            **READ,
            "tidemark.topicId": f'{{"orders":"{uuid_to_text(topic_id)}"}}',
            "tidemark.logStart": '{"orders":{"1":44}}',
        }
    ).where
    assert where.topic_ids == {"orders": topic_id}
    assert where.log_starts == {P1: 44}


def test_a_sink_is_not_taken_for_a_query() -> None:
    assert not looks_like_reading({"topic": "out", **CLUSTER})
    assert looks_like_reading({"SubscribePattern": "a"})


OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "z_1"]), st.integers(0, 200)),
    st.integers(0, (1 << 63) - 1),
)


def test_the_json_is_that_of_sparks_kafka_source() -> None:
    offsets = {
        TopicPartition("b", 10): 5,
        TopicPartition("b", 2): 7,
        TopicPartition("a", 0): 123,
    }
    assert json.dumps(to_map(offsets)) == '{"a": {"0": 123}, "b": {"2": 7, "10": 5}}'
    assert from_map(json.loads('{"b":{"10":5,"2":7},"a":{"0":123}}')) == offsets


@given(OFFSETS)
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_map(offsets))
    assert from_map(json.loads(text)) == offsets
    assert json.dumps(to_map(dict(reversed(offsets.items())))) == text


@pytest.mark.parametrize("said", [{"a": 5}, {"a": {"x": 5}}, {"a": {"0": "5"}}, {"a": {"0": -1}}])
def test_the_checkpoint_of_another_source_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="give another checkpointLocation"):
        from_map(said)
