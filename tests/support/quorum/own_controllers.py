"""Tidemark's controllers."""

import sys

from tests.support.quorum.controllers import Controller


class TidemarkController(Controller):
    """One process of `tidemark start`."""

    kind = "tidemark"

    def format_command(self, *options: str) -> list[str]:
        config = str(self.config_file)
        return [
            *_TIDEMARK, "format", "--config", config,
            "--cluster-id", self.membership.cluster_id, *options,
        ]  # fmt: skip

    def start_command(self) -> list[str]:
        return [*_TIDEMARK, "start", "--config", str(self.config_file)]


_TIDEMARK = (sys.executable, "-m", "tidemark.cli")
