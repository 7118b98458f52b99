"""Why a metadata directory cannot be used, in words for whoever has to repair it."""

from kafka_protocol.errors import TidemarkError


class QuorumConfigError(TidemarkError):
    """The voters on disk or in the configuration do not let this node run. Names both sides."""


class UnusableMetadataError(TidemarkError):
    """The metadata directory holds what cannot be relied on.

    Raised before anything on the disk is changed. The message names the file, the position in it
    and the remedy.
    """


class DamagedMetadataError(UnusableMetadataError):
    """Bytes that were once flushed are gone or changed."""


class ForeignSnapshotError(UnusableMetadataError):
    """A snapshot contradicts a whole log, and this node neither made nor fetched it."""


class MissingMetadataError(UnusableMetadataError):
    """Records are gone that no snapshot contains."""


class UnreadableRecordError(UnusableMetadataError):
    """A whole batch, as it was written, holds a record that this version cannot read or replay."""


class OtherLogError(UnusableMetadataError):
    """The leader's log of one epoch is not the one that this node has of it."""
