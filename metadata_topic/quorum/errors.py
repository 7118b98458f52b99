"""Reasons why a metadata directory cannot be used, worded for the operator who repairs it."""

from kafka_protocol.errors import TidemarkError


class QuorumConfigError(TidemarkError):
    """The voters on disk and in the configuration exclude this node. Names both."""


class UnusableMetadataError(TidemarkError):
    """The content of the metadata directory is not reliable.

    Raised before anything on the disk is changed. The message names the file, the position in it
    and the remedy.
    """


class DamagedMetadataError(UnusableMetadataError):
    """Flushed bytes are lost or changed."""


class ForeignSnapshotError(UnusableMetadataError):
    """A snapshot that this node neither made nor fetched contradicts an intact log."""


class MissingMetadataError(UnusableMetadataError):
    """Records are lost that no snapshot has."""


class UnreadableRecordError(UnusableMetadataError):
    """An intact batch has a record that this version cannot read or replay."""


class OtherLogError(UnusableMetadataError):
    """The leader's log and this node's log differ within one epoch."""
