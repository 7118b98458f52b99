"""Names of runs: they sort by time, and no two are the same."""

import secrets
from datetime import UTC, datetime

from runtime.clock import SystemClock


def new_run_name() -> str:
    """A name such as `20261123T065900-5f3a9c1d2b4e`."""
    began = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    return f"{began:%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"
