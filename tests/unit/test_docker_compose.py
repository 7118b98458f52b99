"""docker-compose.yml, as far as it can be checked without a Docker engine.

`compose-spec.json` is the published schema of the Compose Specification (Apache-2.0).
"""

import json
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.config.broker_config import BrokerConfig

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests/golden/compose/compose-spec.json").read_text())
BROKERS = ("broker", "broker-hdfs")


def compose() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return made


SERVICES = compose()["services"]


def overrides(service: str) -> dict[str, str]:
    """The `--override=key=value` arguments of a broker."""
    arguments = [one.removeprefix("--override=") for one in SERVICES[service]["command"]]
    return dict(one.split("=", 1) for one in arguments)


def config_of(service: str) -> BrokerConfig:
    config, warnings = BrokerConfig.load(
        ROOT / "localstack/broker/server.properties", overrides(service)
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


def sent_to_docker(target: Path) -> Path:
    """Copy what Dockerfile.dockerignore lets into the build."""
    lines = (ROOT / "localstack/broker/Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in lines, "an allow list"
    target.mkdir()
    for name in [line[1:] for line in lines if line.startswith("!")]:
        source = ROOT / name
        assert source.exists(), name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=ignore)
        else:
            shutil.copy(source, target / name)
    return target


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
        assert (ROOT / mount.split(":")[0]).is_dir(), mount
    for name in BROKERS:
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


def test_the_image_is_the_version_that_runs_without_docker() -> None:
    pins = (ROOT / "localstack/requirements.txt").read_text().split()
    (core,) = [one for one in pins if one.startswith("localstack-core[")]
    assert SERVICES["localstack"]["image"] == "localstack/localstack:" + core.split("==")[1]


def test_the_broker_and_the_start_without_docker_use_the_bucket_that_is_made() -> None:
    bucket = SERVICES["localstack"]["environment"]["TIDEMARK_BUCKETS"]
    assert overrides("broker")["rsm.config.bucket"] == bucket
    assert runpy.run_path(str(ROOT / "localstack/start.py"))["BUCKET"] == bucket


@pytest.mark.parametrize("name", BROKERS)
def test_clients_are_told_addresses_that_reach_the_broker(name: str) -> None:
    config = config_of(name)
    inside = {one.name: one for one in config.broker_listeners}
    told = {one.name: one for one in config.advertised_listeners}
    host, internal = told["HOST"], told["INTERNAL"]
    assert (host.host, host.port) == ("localhost", published(name)[inside["HOST"].port])
    assert (internal.host, internal.port) == (name, inside["INTERNAL"].port)
    assert config.remote_log_metadata_manager_listener_name == "INTERNAL"


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_asked_for_its_health_where_it_answers(name: str) -> None:
    config = config_of(name)
    assert config.http_listener is not None
    port = config.http_listener[1]
    assert f"http://127.0.0.1:{port}/ready" in SERVICES[name]["healthcheck"]["test"][-1]
    assert port in published(name)


def test_stores_are_asked_for_under_the_names_of_their_services() -> None:
    endpoint = overrides("broker")["rsm.config.endpoint.url"]
    assert endpoint == f"http://localstack:{next(iter(published('localstack')))}"
    url = overrides("broker-hdfs")["rsm.config.url"]
    assert url.startswith(SERVICES["namenode"]["environment"]["CORE-SITE.XML_fs.defaultFS"] + "/")


def test_no_port_is_published_twice() -> None:
    ports = [port for name in SERVICES for port in published(name).values()]
    assert len(ports) == len(set(ports))


def test_what_is_sent_to_docker_is_enough_to_install_everything(tmp_path: Path) -> None:
    tree = sent_to_docker(tmp_path / "context")
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(tree)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("*.whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert set(packages) <= tops
    dockerfile = (tree / "localstack/broker/Dockerfile").read_text()
    for word in dockerfile.replace("\\", " ").split():
        if word.startswith("localstack/"):
            assert (tree / word).is_file(), word
