"""What ends a replay."""

from kafka_protocol.errors import TidemarkError


class BrokenMetadataLogError(TidemarkError):
    """A committed record contradicts the records before it. Fatal."""
