"""The errors that users of Tidemark catch.

`TidemarkError` is above every error that Tidemark raises on purpose; whatever else
comes out is a bug, or an `OSError` of the machine. Only those of a broker in a test suite stand
apart (`tidemark.BrokerError`): the test's process imports nothing else of ours.
"""

from broker.config.key import ConfigError
from kafka_protocol.errors import KafkaError, TidemarkError
from pipeline.errors import DataLossError, OptionError, PipelineError, StoreUnreachableError
from rlmm.api import MetadataError
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

__all__ = [
    "ConfigError",
    "DataLossError",
    "KafkaError",
    "MetadataError",
    "OptionError",
    "PipelineError",
    "RemoteObjectDamagedError",
    "RemoteResourceNotFoundError",
    "RemoteStorageError",
    "RetriableRemoteStorageError",
    "StoreUnreachableError",
    "TidemarkError",
]
