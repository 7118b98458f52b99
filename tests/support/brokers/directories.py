"""A broker with several log directories, and what a test finds in them from outside."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.brokers.process import BrokerProcess

RUNNER = Path(__file__).parent / "run_broker.py"


class DirectoriesBroker(BrokerProcess):
    """A broker process whose partitions lie in one or more log directories.

    Attributes:
        log_directories: in the order of `log.dirs`; the first one is the metadata directory unless
            `metadata.log.dir` is among the settings.
        is_formatted: a start does not format, whatever is missing.
    """

    is_formatted = False

    def __init__(
        self,
        directory: Path,
        *,
        log_directories: int = 2,
        settings: Mapping[str, str] | None = None,
        tiered: bool = False,
    ) -> None:
        """A broker that is not started yet: on so many directories of its own."""
        super().__init__(directory, settings=settings, tiered=tiered)
        names = ["logs", *(f"logs-{n}" for n in range(2, log_directories + 1))]
        self.log_directories = [directory / name for name in names]
        self._runner: tuple[str, ...] = ()

    def properties(self) -> dict[str, str]:
        """As every broker's, with all log directories."""
        return super().properties() | {"log.dirs": ",".join(map(str, self.log_directories))}

    def format(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`tidemark format`, or nothing where that was done."""
        if self.is_formatted:
            return subprocess.CompletedProcess([], 0, "", "")
        return super().format(*arguments)

    def run_with(self, *arguments: str) -> None:
        """From the next start on: on the disk of `run_broker.py`; without arguments: as usual."""
        self._runner = arguments

    def start_command(self) -> list[str]:
        """The broker's process, or the runner's."""
        if not self._runner:
            return super().start_command()
        config = ("--config", str(self.config_file))
        return [sys.executable, str(RUNNER), *config, *self._runner]

    @property
    def log_directory(self) -> Path:
        """The metadata directory: the harness looks here whether the broker is formatted."""
        configured = self.settings.get("metadata.log.dir")
        return Path(configured) if configured else self.log_directories[0]

    def index_of(self, topic: str, partition: int = 0) -> int:
        """Number of the only log directory that holds a partition."""
        name = f"{topic}-{partition}"
        found = [
            index
            for index, directory in enumerate(self.log_directories)
            if (directory / name).is_dir()
        ]
        assert len(found) == 1, f"{name} lies in {found} of {self.log_directories}"
        return found[0]

    def partition_directory(self, topic: str, partition: int = 0) -> Path:
        """Where a partition lies; in the first directory when it lies nowhere."""
        name = f"{topic}-{partition}"
        for directory in self.log_directories:
            if (directory / name).is_dir():
                return directory / name
        return self.log_directories[0] / name
