"""A broker's claim on the store, and its own counter: compared, and brought together by a person.

A tier whose store holds a higher claim than its own files know copies and deletes nothing
(`rlm.maintenance.claim`). Who knows that these files are the ones to continue with says so here:
the counter is set to the claim, and the next start continues above both. Only a damaged claim is
replaced: while the store holds none, an older copy would be taken for the right one. Where the
store was emptied or replaced, the counter forgets that it ever held a claim.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.remote.process import take_tier_lock
from rlm.maintenance.claim import validate
from rlm.maintenance.incarnation import FILE_NAME, Counter, check_forms, dump, read
from rlmm.rocksdb_store import highest_incarnation
from rsm_plugins.api import ClaimKeeper, RemoteObjectDamagedError, RemoteStorageManager
from runtime.disk import Disk
from tidemark.node_files.log_directories import LogDirectoryError, stopped

METADATA_CACHE = "remote-log-metadata"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The claims in store and files.

    Attributes:
        found: the store's claim; None: it holds none, or a damaged one.
        damaged: what is wrong with the store's claim; empty: nothing.
        local: the counter in the files.
        highest_read: the highest number in the records that this broker has read, None: not known.
        now_ms: the wall clock.
    """

    cluster_id: str
    node_id: int
    found: int | None
    damaged: str
    local: Counter
    highest_read: int | None
    now_ms: int

    @property
    def reason(self) -> str:
        """Why the tier would copy nothing; empty where it would."""
        return self.damaged or validate(self.found, self.local)

    @property
    def is_missing(self) -> bool:
        """Whether the store holds no claim where it held one."""
        return bool(self.reason) and self.found is None and not self.damaged

    @property
    def wanted(self) -> Counter:
        """The counter with which it continues: above everything known, and all of it its own.

        A damaged claim is not known; it was not above the clock.
        """
        known = (self.local.number, self.local.claimed, self.found, self.highest_read)
        number = max(one for one in known if one is not None)
        if self.damaged:
            number = max(number, self.now_ms) + 1
        return Counter(number, None).noted(number, self.found)

    def lines(self) -> Sequence[str]:
        """The same for people."""
        store = "damaged" if self.damaged else _shown(self.found)
        return (
            f"cluster {self.cluster_id}, broker {self.node_id}",
            f"  claim in the store:            {store}",
            f"  last claim of these files:     {_shown(self.local.claimed)}",
            f"  counter of these files:        {self.local.number or 'none'}",
            f"  highest number read in topic:  {_shown(self.highest_read)}",
        )


@contextmanager
def locked(config: BrokerConfig, disk: Disk) -> Iterator[str]:
    """Hold the node's directories and its tier's lock; gives the cluster id.

    Raises:
        DirectoryError: the broker runs, or a directory cannot be used.
        LogDirectoryError: its tier has not ended yet.
    """
    with stopped(config, disk) as directories:
        lock = take_tier_lock(disk, config.metadata_log_dir)
        if lock is None:
            raise LogDirectoryError(
                "a tier process of this broker still runs: stop the broker first"
            )
        try:
            yield directories.cluster_id
        finally:
            lock.close()


def compare(
    config: BrokerConfig, cluster_id: str, storage: RemoteStorageManager, disk: Disk, now_ms: int
) -> Comparison:
    """Look at store and files.

    Raises:
        LogDirectoryError: the plugin keeps no claims. RemoteStorageError: the store failed.
        OlderFormError: the next start would not take these files.
    """
    check_forms(disk, config.metadata_log_dir, config.log_dirs[0])
    if not isinstance(storage, ClaimKeeper):
        raise LogDirectoryError("the storage plugin keeps no claims: there is nothing to take")
    found, damaged = None, ""
    try:
        found = storage.read_claim(cluster_id, config.node_id)
    except RemoteObjectDamagedError as error:
        damaged = str(error)
    return Comparison(
        cluster_id,
        config.node_id,
        found,
        damaged,
        read(disk, config.metadata_log_dir / FILE_NAME),
        highest_incarnation(config.metadata_log_dir / METADATA_CACHE),
        now_ms,
    )


def take(
    config: BrokerConfig,
    compared: Comparison,
    storage: RemoteStorageManager,
    disk: Disk,
) -> Path | None:
    """Set the counter; a damaged claim in the store is replaced.

    Returns:
        Where the counter of before is kept; None: there was none.
    """
    path = config.metadata_log_dir / FILE_NAME
    kept = None
    if disk.exists(path):
        kept = path.with_name(f"{FILE_NAME}.before-claim-{compared.now_ms}")
        disk.atomic_write(kept, disk.read_file(path))
    disk.atomic_write(path, dump(compared.wanted))
    if compared.damaged and isinstance(storage, ClaimKeeper):
        storage.write_claim(compared.cluster_id, compared.node_id, compared.wanted.number)
    return kept


def _shown(number: int | None) -> str:
    return "none" if number is None else str(number)
