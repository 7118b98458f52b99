"""A broker with a second disk, which is lost with all partitions on it, and given up."""

import shutil
from pathlib import Path

from tests.support.brokers.process import BrokerProcess, until


def with_second_disk(broker: BrokerProcess) -> Path:
    """Start it; the metadata topic of its tier is on the first disk, new topics on the second."""
    first, second = broker.directory / "logs", broker.directory / "second"
    broker.start()
    until((first / "__remote_log_metadata-0").is_dir, "the metadata topic is there")
    assert broker.terminate() == 0
    second.mkdir()
    broker.settings["log.dirs"] = f"{first},{second}"
    broker.start()
    return second


def lose_second_disk(broker: BrokerProcess) -> None:
    """Kill the broker, take the disk away and forget it; the broker is not started again."""
    first, second = broker.directory / "logs", broker.directory / "second"
    broker.kill()
    shutil.rmtree(second)
    config = ("--config", str(broker.config_file))
    listed = broker.command("directories", "list", *config).stdout.splitlines()
    (missing,) = [line.split()[0] for line in listed if line.rstrip().endswith("missing")]
    given_up = ("--records-given-up", "unknown")
    forgotten = broker.command("directories", "forget", missing, *given_up, "--yes", *config)
    assert forgotten.returncode == 0, forgotten.stderr
    broker.settings["log.dirs"] = str(first)
