"""Opens the tiered log of a cluster or of a bucket alone."""

from pipeline.errors import OptionError
from pipeline.log import TieredLog
from pipeline.truth.bucket_log import BucketLog
from pipeline.truth.cluster_log import ClusterLog
from pipeline.values import Where
from runtime.clock import SystemClock


def open_log(where: Where) -> TieredLog:
    """The log of that place; the caller closes it.

    Raises:
        OptionError: neither a cluster nor a store is named, or a setting is wrong.
        ClusterError: no broker answers.
        StoreUnreachableError: the store cannot be used from here.
    """
    clock = SystemClock()
    if where.cluster is not None:
        return ClusterLog(where, clock)
    if where.store is None:
        raise OptionError("nothing says where the log is: give bootstrap servers or a bucket")
    return BucketLog(where, where.store, clock)
