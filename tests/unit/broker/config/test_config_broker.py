from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.listeners import Listener
from broker.config.rules import check_replication
from tests.support.samples.config import (
    BASE,
    SERVER_PROPERTIES,
    TIERED,
    load,
    load_entries,
    warnings_of,
)


def refusal(changes: dict[str, str | None]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_entries(changes)
    return str(caught.value)


def test_a_real_server_properties_loads_without_warnings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(SERVER_PROPERTIES.replace("\n", "\r\n").encode())
    config, warnings = BrokerConfig.load(file, {"log.retention.hours": "1"})
    assert warnings == []
    assert config.node_id == 1
    assert config.log_retention_ms == 3_600_000
    assert config.log_dirs == (Path("data/kraft combined/logs"),)
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.controller_quorum_bootstrap_servers == (("localhost", 9093),)
    assert config.without_effect == ("num.io.threads", "num.network.threads")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.properties"):
        BrokerConfig.load(tmp_path / "nothing.properties")


def test_defaults_are_kafkas() -> None:
    config = load()
    assert config.log_retention_ms == 604_800_000
    assert config.log_segment_bytes == 1 << 30
    assert config.log_flush_interval_ms == 2**63 - 1
    assert config.remote_log_reader_threads == 10
    assert not config.remote_log_storage_system_enable
    assert config.rlmm_settings["remote.log.metadata.topic.num.partitions"] == "50"
    assert config.metadata_log_dir == Path("data/one")
    assert config.http_listener is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins(entries: dict[str, str], expected: int) -> None:
    assert load_entries({**entries}).log_retention_ms == expected


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_a_required_key_must_be_there(name: str) -> None:
    assert refusal({name: None}).startswith(f"{name}: is required")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "0"),
        ("process.roles", "broker,king"),
        ("log.retention.ms", "0"),
        ("log.segment.bytes", "100"),
        ("listeners", "PLAINTEXT:/localhost:9092"),
        ("listeners", "PLAINTEXT://localhost:70000"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2,CONTROLLER://:3"),
        ("listeners", "PLAINTEXT://a:9092,CONTROLLER://b:9092"),
        ("listeners", "PLAINTEXT://localhost:9092"),
        ("listeners", "CONTROLLER://localhost:9092"),
        ("listeners", "SSL://localhost:9092,CONTROLLER://localhost:9093"),
        ("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093,OTHER://:1"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"),
        ("advertised.listeners", "SSL://localhost:9092"),
        ("inter.broker.listener.name", "INTERNAL"),
        ("controller.quorum.voters", "2@127.0.0.1:9093"),
        ("controller.quorum.voters", "127.0.0.1:9093"),
        ("controller.quorum.voters", None),
        ("controller.listener.names", ""),
        ("log.dirs", ""),
        ("controller.listener.names", "CONTROLLER,OTHER"),
        ("advertised.listeners", "CONTROLLER://h:9093"),
        ("replica.fetch.wait.max.ms", "99999"),
        ("log.cleaner.threads", "200"),
        ("broker.id", "7"),
        ("max.connections.per.ip", "0"),
        ("queued.max.request.bytes", "104857599"),
        ("max.connections.per.ip.overrides", "localhost"),
        ("log.cleaner.max.compaction.lag.ms", "0"),
        ("remote.log.storage.system.enable", "true"),
        ("tidemark.http.listener", "9464"),
        ("remote.log.manager.task.retry.jitter", "0.6"),
    ],
)
def test_what_kafka_refuses_is_refused_naming_a_key_and_its_value(
    key: str, value: str | None
) -> None:
    message = refusal({key: value})
    name = message.partition(":")[0].partition("=")[0]
    assert "." in name or name == "listeners"
    assert ": " in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.dirs", "a,a"),
        ("advertised.listeners", "PLAINTEXT://:9092"),
        ("listeners", "plaintext://h:9092, controller://h:9093"),
        ("listeners", "PLAINTEXT://h:0,CONTROLLER://h:0"),
        ("process.roles", "broker,broker,controller"),
        ("num.partitions", " 3 "),
        ("log.cleanup.policy", ""),
        ("broker.heartbeat.interval.ms", "9000"),
        ("log.local.retention.ms", "99999999999"),
        ("auto.create.topics.enable", "TRUE"),
    ],
)
def test_what_kafka_accepts_is_accepted(key: str, value: str) -> None:
    load_entries({key: value})


def test_a_voter_list_without_this_node_names_the_list_and_the_node() -> None:
    message = refusal({"controller.quorum.voters": "2@h:1,3@h:2"})
    assert "2@h:1,3@h:2" in message
    assert "node.id=1" in message


def test_a_controller_joins_voters_of_the_log_alone() -> None:
    joins = {"controller.quorum.auto.join.enable": "true"}
    assert "must be false where controller.quorum.voters names the voters" in refusal(joins)
    found: dict[str, str | None] = {
        "controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "h:1"
    }  # fmt: skip
    assert load_entries({**joins, **found})
    only_a_broker = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
    assert "never votes" in refusal({**joins, **found, **only_a_broker})


def test_a_tls_listener_says_what_is_served() -> None:
    message = refusal({"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"})
    assert "PLAINTEXT:SSL" in message
    assert "must use PLAINTEXT" in message


def test_a_remote_tier_needs_a_plugin_class() -> None:
    on = {"remote.log.storage.system.enable": "true"}
    assert "remote.log.storage.manager.class.name" in refusal({**on})
    assert load_entries({**TIERED}).remote_log_storage_system_enable


def test_with_a_remote_tier_local_retention_stays_below_the_total() -> None:
    for local in ("-1", "1001"):
        message = refusal({**TIERED, "log.retention.ms": "1000", "log.local.retention.ms": local})
        assert f"log.local.retention.ms={local}" in message
        assert "log.retention.ms=1000" in message
    assert load(log__retention__ms="1000", log__local__retention__ms="1001")


@pytest.mark.parametrize("interval_ms", ["0", "10001"])
def test_a_controller_beside_a_tier_writes_idle_records_in_time(interval_ms: str) -> None:
    """A lone one, too: a broker may come beside it, whose tier waits for them."""
    asked = {"metadata.max.idle.interval.ms": interval_ms}
    message = refusal({**TIERED, **asked})
    assert f"metadata.max.idle.interval.ms={interval_ms}: must be from 1 to 10000" in message
    assert load_entries({**asked})
    only_a_broker = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
    voters = {"controller.quorum.voters": "2@h:1"}
    assert load_entries({**TIERED, **asked, **only_a_broker, **voters})
    only_a_controller = {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    message = refusal({**TIERED, **asked, **only_a_controller})
    assert f"metadata.max.idle.interval.ms={interval_ms}" in message


@pytest.mark.parametrize("interval_ms", ["1", "10000"])
def test_idle_records_that_are_frequent_enough_pass_beside_a_tier(interval_ms: str) -> None:
    assert load_entries({**TIERED, "metadata.max.idle.interval.ms": interval_ms})


def test_a_file_that_relies_on_acls_is_refused() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    message = refusal({"authorizer.class.name": name})
    assert f"authorizer.class.name={name}: must be empty: there are no ACLs here yet" in message
    assert load_entries({"authorizer.class.name": ""})


def test_broker_id_stands_in_for_node_id() -> None:
    assert load(node__id=None, broker__id="4", controller__quorum__voters="4@h:1").node_id == 4
    assert load().get("broker.id") == 1


def test_old_names_are_translated_and_mebibytes_become_bytes() -> None:
    config = load_entries(
        {
            "remote.log.index.file.cache.total.size.mb": "3",
            "local.log.retention.ms": "5",
            "quorum.election.timeout.ms": "77",
            "remote.log.metadata.topic.partitions": "7",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "remote.log.metadata.producer.acks": "all",
            "remote.log.storage.dir": "tier",
        }
    )
    assert config.remote_log_index_file_cache_total_size_bytes == 3 << 20
    assert config.log_local_retention_ms == 5
    assert config.get("controller.quorum.election.timeout.ms") == 77
    assert config.rlmm_settings["remote.log.metadata.topic.num.partitions"] == "7"
    assert config.rlmm_settings["remote.log.metadata.topic.replication.factor"] == "1"
    assert config.rlmm_settings["remote.log.metadata.producer.acks"] == "all"
    assert config.rsm_settings == {"dir": "tier"}
    assert "local.log.retention.ms" not in config.layers.static


def test_old_and_new_name_with_different_values_are_refused_naming_both() -> None:
    old, new = (
        "remote.log.index.file.cache.total.size.mb",
        "remote.log.index.file.cache.total.size.bytes",
    )
    message = refusal({old: "1", new: "5"})
    assert f"{old}=1" in message or f"{new}=5" in message
    assert old in message
    assert new in message
    both = load_entries({old: "1", new: "1048576"})
    assert both.remote_log_index_file_cache_total_size_bytes == 1 << 20


def test_an_override_wins_over_the_file_also_under_the_old_name() -> None:
    config, _ = BrokerConfig.load(
        {**BASE, "log.local.retention.ms": "5"}, {"local.log.retention.ms": "6"}
    )
    assert config.log_local_retention_ms == 6


def test_an_unknown_key_gives_a_warning_with_the_nearest_name() -> None:
    assert warnings_of({"log.retention.hour": "1"}) == [
        "unknown key log.retention.hour: did you mean log.retention.hours?"
    ]
    assert warnings_of({"zzz": "1"}) == ["unknown key zzz; it is ignored"]
    assert "log.retention.ms" in warnings_of({"retention.ms": "1"})[0]
    assert (
        "max.snapshot.interval"
        in warnings_of({"metadata.snapshot.min.changed_records.ratio": "1"})[0]
    )


def test_a_metadata_manager_value_is_checked_under_its_full_name() -> None:
    name = "rlmm.config.remote.log.metadata.topic.num.partitions"
    assert refusal({name: "0"}).startswith(f"{name}=0: must be")


def test_what_is_set_over_the_wire_lies_over_the_file() -> None:
    config = load(log__retention__ms="1000")
    changed = config.with_dynamic({"log.retention.ms": "2000"}, {"log.retention.ms": "3000"})
    assert (config.log_retention_ms, changed.log_retention_ms) == (1000, 3000)
    assert config.with_dynamic({"log.retention.ms": "2000"}, {}).log_retention_ms == 2000


def test_the_old_follower_pool_size_counts_while_the_new_one_is_not_set() -> None:
    old, new = "remote.log.manager.thread.pool.size", "remote.log.manager.follower.thread.pool.size"
    assert load_entries({old: "5"}).remote_log_manager_follower_thread_pool_size == 5
    assert load_entries({old: "5", new: "6"}).remote_log_manager_follower_thread_pool_size == 6


def test_ipv6_listeners_stand_in_brackets() -> None:
    config = load(listeners="PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:9093")
    assert config.broker_listeners[0].host == "::1"
    assert str(config.broker_listeners[0]) == "PLAINTEXT://[::1]:9092"
    assert "brackets" in refusal({"listeners": "PLAINTEXT://::1:9092,CONTROLLER://h:1"})


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    config = load(
        listeners="PLAINTEXT://127.0.0.1:1,OTHER://[::1]:1,CONTROLLER://h:2",
        listener__security__protocol__map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    assert len(config.broker_listeners) == 2


def test_too_many_replicas_name_key_value_and_brokers() -> None:
    check_replication("k", 1, [5])
    with pytest.raises(ConfigError) as caught:
        check_replication("rlmm.config.remote.log.metadata.topic.replication.factor", 3, [1])
    assert str(caught.value) == (
        "rlmm.config.remote.log.metadata.topic.replication.factor=3: must not be more than the "
        "number of brokers, 1 (ids: 1)"
    )


def test_secrets_do_not_show_in_the_representation() -> None:
    config = load_entries({"ssl.key.password": "hunter2", "rsm.config.token": "hunter3"})
    assert "hunter" not in repr(config)


@pytest.mark.parametrize("codec", ["-1", "5"])
def test_a_codec_of_the_offsets_topic_that_does_not_exist_is_refused(codec: str) -> None:
    with pytest.raises(ConfigError, match=r"offsets\.topic\.compression\.codec=.*4 zstd"):
        load(**{"offsets.topic.compression.codec": codec})


@pytest.mark.parametrize(
    ("listener", "token", "named"),
    [
        ("0.0.0.0:9465", "sixteen-letters!", "tidemark.control.listener"),
        ("192.168.0.1:9465", "sixteen-letters!", "tidemark.control.listener"),
        ("example.org:9465", "sixteen-letters!", "tidemark.control.listener"),
        (":9465", "sixteen-letters!", "tidemark.control.listener"),
        ("9465", "sixteen-letters!", "tidemark.control.listener"),
        ("127.0.0.1:0", "", "tidemark.control.token"),
        ("127.0.0.1:0", "fifteen-letters", "tidemark.control.token"),
        ("127.0.0.1:0", "with a space in it", "tidemark.control.token"),
    ],
)
def test_commands_are_taken_on_loopback_and_with_a_token_only(
    listener: str, token: str, named: str
) -> None:
    settings = {"tidemark.control.listener": listener, "tidemark.control.token": token}
    said = refusal(dict(settings))
    assert named in said
    assert token == "" or token not in said


@pytest.mark.parametrize(
    "listeners",
    [
        "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093",
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://0.0.0.0:9093",
        "PLAINTEXT://broker:9092,CONTROLLER://127.0.0.1:9093",
    ],
)
def test_commands_of_tests_are_refused_unless_all_listeners_are_loopback(
    listeners: str,
) -> None:
    settings = {
        "listeners": listeners,
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "tidemark.control.listener": "127.0.0.1:0",
        "tidemark.control.token": "sixteen-letters!",
    }
    with pytest.raises(ConfigError, match="bind every listener to loopback"):
        load(**settings)


@pytest.mark.parametrize("listener", ["127.0.0.1:0", "localhost:9465", "[::1]:9465", "127.9.9.9:1"])
def test_the_control_listener_has_an_address_of_loopback(listener: str) -> None:
    assert load().control_listener is None
    config = load(tidemark__control__listener=listener, tidemark__control__token="x" * 16)
    host, port = config.control_listener or ("", -1)
    shown = f"[{host}]" if ":" in host else host
    assert f"{shown}:{port}" == listener


def test_where_followers_begin_is_set_over_the_wire_their_hold_is_not() -> None:
    config = load()
    assert config.follower_fetch_last_tiered_offset_enable is False
    assert config.tidemark_follower_bootstrap_hold_ms == 600_000
    changed = config.with_dynamic({"follower.fetch.last.tiered.offset.enable": "true"}, {})
    assert changed.follower_fetch_last_tiered_offset_enable is True
    without = load(tidemark__follower__bootstrap__hold__ms="0")
    assert without.tidemark_follower_bootstrap_hold_ms == 0
    with pytest.raises(ConfigError, match=r"tidemark\.follower\.bootstrap\.hold\.ms"):
        load(tidemark__follower__bootstrap__hold__ms="-1")
