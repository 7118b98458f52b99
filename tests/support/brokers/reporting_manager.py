"""The usual metadata manager, which writes down as whom its clients write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from tests.support.brokers.process import BrokerProcess, until

TOLD = "told.json"
"""Beside the log directory; what the metadata manager was configured with last."""


class TellingManager(TopicBasedRemoteLogMetadataManager):
    def configure(self, configs: Mapping[str, str]) -> None:
        path = Path(configs["log.dir"]).parent / TOLD
        written = path.with_suffix(".new")
        written.write_text(json.dumps(dict(configs)))
        written.rename(path)
        super().configure(configs)


def telling(broker: BrokerProcess) -> BrokerProcess:
    """Let the broker's tiers write down their settings."""
    manager = f"{TellingManager.__module__}:{TellingManager.__name__}"
    broker.settings |= {"remote.log.metadata.manager.class.name": manager}
    return broker


def told(broker: BrokerProcess) -> dict[str, Any]:
    path = broker.directory / TOLD
    until(path.exists, "the tier connects")  # a broker is ready before
    found: dict[str, Any] = json.loads(path.read_text())
    return found
