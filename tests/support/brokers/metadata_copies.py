"""An older copy of a broker's metadata directory."""

import shutil
from pathlib import Path

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.brokers.process import BrokerProcess

METADATA = "__cluster_metadata-0"


def put_back(broker: BrokerProcess, copy: Path) -> None:
    """The metadata log of an earlier time; the operator says that it is meant."""
    shutil.rmtree(broker.log_directory / METADATA)
    shutil.copytree(copy, broker.log_directory / METADATA)
    meta = parse_meta_properties((broker.log_directory / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    directory_id = uuid_to_text(meta.directory_id)
    accept = ("directories", "accept", directory_id, "--yes", "--config", str(broker.config_file))
    done = broker.command(*accept)
    assert done.returncode == 0, done.stdout + done.stderr


def copy_of_metadata(broker: BrokerProcess, name: str) -> Path:
    copy = broker.directory / name
    shutil.copytree(broker.log_directory / METADATA, copy)
    return copy
