"""docker-compose.yml, as far as it can be checked without a Docker engine.

`compose-spec.json` is the published schema of the Compose Specification (Apache-2.0).
"""

import importlib
import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.config.broker_config import BrokerConfig
from broker.observe.console.serving import Access
from rsm_plugins.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests/golden/compose/compose-spec.json").read_text())
CLUSTER = ("broker-1", "broker-2", "broker-3")
BROKERS = ("broker", "broker-hdfs", *CLUSTER)
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
NODES = (*BROKERS, *CONTROLLERS)


def compose() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return made


SERVICES = compose()["services"]


def overrides(service: str) -> dict[str, str]:
    """The `--override=key=value` arguments of a broker."""
    arguments = [one.removeprefix("--override=") for one in SERVICES[service]["command"]]
    return dict(one.split("=", 1) for one in arguments)


def config_of(service: str) -> BrokerConfig:
    """By the properties that its entry point names, the image's if it says nothing."""
    image = ["tidemark-broker", "--config", "/etc/tidemark/server.properties"]
    program, option, file = SERVICES[service].get("entrypoint", image)
    assert (program, option) == ("tidemark-broker", "--config")
    config, warnings = BrokerConfig.load(
        ROOT / "localstack/broker" / Path(file).name, overrides(service)
    )
    assert warnings == []
    return config


def published(service: str) -> dict[int, int]:
    """Port in the container to port on the machine that runs Docker."""
    found = {}
    for text in SERVICES[service].get("ports", []):
        address, outside, inside = text.split(":")
        assert address == "127.0.0.1", "no access control: for this machine only"
        found[int(inside)] = int(outside)
    return found


def test_the_file_fits_the_compose_specification() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(compose())


def test_the_specification_would_find_a_wrong_word() -> None:
    wrong = compose()
    wrong["services"]["broker"]["depend_on"] = ["localstack"]
    with pytest.raises(jsonschema.ValidationError, match="depend_on"):
        jsonschema.Draft7Validator(SCHEMA).validate(wrong)


def test_what_is_mounted_and_built_is_there() -> None:
    mounts = [one for service in SERVICES.values() for one in service.get("volumes", [])]
    assert mounts
    for mount in mounts:
        source = mount.split(":")[0]
        assert source in compose()["volumes"] or (ROOT / source).is_dir(), mount
    for name in NODES:
        build = SERVICES[name]["build"]
        assert (ROOT / build["context"] / build["dockerfile"]).is_file()
        assert (ROOT / build["context"] / f"{build['dockerfile']}.dockerignore").is_file()


def test_nothing_waits_for_a_service_that_is_not_started_with_it() -> None:
    for name, service in SERVICES.items():
        wanted = service.get("depends_on", {})
        for other in wanted:
            assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", []))
            if isinstance(wanted, dict) and wanted[other]["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], (name, other)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("broker", {"localstack"}),
        ("broker-hdfs", {"datanode", "namenode"}),
        ("broker-3", {"broker-1", "localstack", *CONTROLLERS}),
    ],
)
def test_a_broker_brings_all_of_its_store_along(name: str, needs: set[str]) -> None:
    found: set[str] = set()
    following = [name]
    while following:
        more = set(SERVICES[following.pop()].get("depends_on", ()))
        following += more - found
        found |= more
    assert found == needs


def test_the_image_is_the_version_that_runs_without_docker() -> None:
    pins = (ROOT / "localstack/requirements.txt").read_text().split()
    (core,) = [one for one in pins if one.startswith("localstack-core[")]
    assert SERVICES["localstack"]["image"] == "localstack/localstack:" + core.split("==")[1]


def test_the_broker_and_the_start_without_docker_use_the_created_bucket() -> None:
    bucket = SERVICES["localstack"]["environment"]["TIDEMARK_BUCKETS"]
    assert overrides("broker")["rsm.config.bucket"] == bucket
    assert runpy.run_path(str(ROOT / "localstack/start.py"))["BUCKET"] == bucket


@pytest.mark.parametrize("name", BROKERS)
def test_every_setting_of_the_store_is_known_to_its_plugin(name: str) -> None:
    config = config_of(name)
    value = config.remote_log_storage_manager_class_name
    assert value is not None
    module, class_name = value.split(":")
    settings = getattr(importlib.import_module(module), class_name).SETTINGS
    assert set(config.rsm_settings) <= {one.name for one in settings}
    read_settings(settings, config.rsm_settings)


@pytest.mark.parametrize("name", BROKERS)
def test_clients_are_told_addresses_that_reach_the_broker(name: str) -> None:
    config = config_of(name)
    inside = {one.name: one for one in config.broker_listeners}
    told = {one.name: one for one in config.advertised_listeners}
    host, internal = told["HOST"], told["INTERNAL"]
    assert (host.host, host.port) == ("localhost", published(name)[inside["HOST"].port])
    assert (internal.host, internal.port) == (name, inside["INTERNAL"].port)


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_asked_for_its_health_where_it_answers(name: str) -> None:
    config = config_of(name)
    assert config.http_listener is not None
    port = config.http_listener[1]
    assert f"http://127.0.0.1:{port}/ready" in SERVICES[name]["healthcheck"]["test"][-1]
    assert port in published(name) or name in CONTROLLERS


@pytest.mark.parametrize("name", BROKERS)
def test_a_browser_on_this_machine_is_served_the_page_and_no_other_name_is(name: str) -> None:
    config = config_of(name)
    assert config.http_listener is not None
    host, port = config.http_listener
    access = Access.of(host, config.tidemark_console_enable, config.tidemark_console_hosts)
    assert access.is_open
    assert access.allows(f"127.0.0.1:{published(name)[port]}")
    assert access.allows(f"localhost:{published(name)[port]}")
    assert not access.allows("elsewhere.example")


def test_the_nodes_of_the_cluster_find_each_other() -> None:
    configs = {name: config_of(name) for name in (*CONTROLLERS, *CLUSTER)}
    assert len({config.node_id for config in configs.values()}) == len(configs)
    (voters,) = {config.controller_quorum_voters for config in configs.values()}
    for name in CONTROLLERS:
        (listener,) = configs[name].controller_listeners
        assert listener.host == name
        assert (configs[name].node_id, name, listener.port) in [
            (voter.id, voter.host, voter.port) for voter in voters
        ]
    formats = {SERVICES[name]["environment"]["TIDEMARK_FORMAT"] for name in configs}
    assert {text.split()[1] for text in formats} == {"tidemark-compose"}


@pytest.mark.parametrize("name", CLUSTER)
def test_the_tiers_of_the_cluster_share_a_secret_and_a_store(name: str) -> None:
    config, first = config_of(name), config_of("broker-1")
    assert config.remote_log_storage_system_enable
    assert config.rsm_settings == first.rsm_settings == config_of("broker").rsm_settings
    assert "--cluster-secret" in SERVICES[name]["environment"]["TIDEMARK_FORMAT"]
    (volume,) = SERVICES[name]["volumes"]
    assert Path(config.tidemark_cluster_secret_file).parent == Path(volume.split(":")[1])
    told, inside = config.advertised_tier_listener, config.tier_listener
    assert told is not None
    assert inside is not None
    assert (told.host, told.port) == (name, inside.port)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_validates_topics_by_what_its_brokers_have(name: str) -> None:
    controller, broker = config_of(name), config_of("broker-1")
    for key in (
        "remote.log.storage.system.enable",
        "log.segment.bytes",
        "default.replication.factor",
        "min.insync.replicas",
    ):
        assert controller.get(key) == broker.get(key)


def test_the_cluster_keeps_three_copies_and_may_lose_one() -> None:
    for name in CLUSTER:
        config = config_of(name)
        assert config.default_replication_factor == len(CLUSTER)
        assert config.min_insync_replicas == len(CLUSTER) - 1
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            assert config.get(f"{topic}.replication.factor") == len(CLUSTER)


def test_stores_are_asked_for_under_the_names_of_their_services() -> None:
    endpoint = overrides("broker")["rsm.config.endpoint.url"]
    assert endpoint == f"http://localstack:{next(iter(published('localstack')))}"
    url = overrides("broker-hdfs")["rsm.config.url"]
    assert url.startswith(SERVICES["namenode"]["environment"]["CORE-SITE.XML_fs.defaultFS"] + "/")


def test_no_port_is_published_twice() -> None:
    ports = [port for name in SERVICES for port in published(name).values()]
    assert len(ports) == len(set(ports))
