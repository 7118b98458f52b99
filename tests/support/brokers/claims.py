"""Claims that brokers wrote to their store."""

from pathlib import Path

from tests.support.brokers.files import files_below
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_partition import reasons


def claim_files(root: Path) -> list[Path]:
    return sorted(path for path in files_below(root / "claims") if path.name.isdigit())


def older_copy_reason(broker: BrokerProcess) -> str:
    def found() -> list[str]:
        return [each for each in reasons(broker) if "older copy" in each]

    return until(found, "health says that the directories are an older copy")[0]
