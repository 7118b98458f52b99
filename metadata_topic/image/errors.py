"""What ends a replay."""


class BrokenMetadataLogError(Exception):
    """A committed record contradicts the records before it. Fatal."""
