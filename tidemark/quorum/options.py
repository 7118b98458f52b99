"""Where the quorum is, as the options of `tidemark metadata-quorum` say it."""

from dataclasses import dataclass
from pathlib import Path

from tidemark.remote.options import WrongOptionError


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The options of the group, for its commands."""

    server: str | None
    controller: str | None
    command_config: Path | None

    def address(self) -> str:
        """The one address that was given.

        Raises:
            WrongOptionError: none was, or both.
        """
        if self.server is not None and self.controller is not None:
            raise WrongOptionError(
                "--bootstrap-server and --bootstrap-controller exclude each other; keep the one "
                "that fits the listener"
            )
        given = self.server if self.controller is None else self.controller
        if given is None:
            raise WrongOptionError("--bootstrap-server or --bootstrap-controller is required")
        return given
