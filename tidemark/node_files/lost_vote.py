"""Give a controller that lost its quorum-state one with which it cannot vote twice."""

from broker.config.broker_config import BrokerConfig
from broker.node.raft_config import quorum_settings
from metadata_topic.quorum.driver.quorum_state_file import QUORUM_STATE, QuorumStateFile
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.quorum.start.quorum_start import (
    AbstentionError,
    abstain_until,
    static_voter_set,
)
from metadata_topic.quorum.start.recovery import read_directory
from metadata_topic.raft.messages import BOOTSTRAP_ID
from metadata_topic.raft.voters import ReplicaKey
from runtime.disk import Disk
from runtime.rng import Rng
from tidemark.node_files.log_directories import LogDirectoryError, stopped


def abstain(config: BrokerConfig, epoch: int, disk: Disk, rng: Rng) -> None:
    """Write a quorum-state that gives no vote up to `epoch`; the node is stopped.

    Raises:
        LogDirectoryError: it is not missing, this node may continue without, or the epoch is too
            low.
        UnusableMetadataError: the metadata directory cannot be used.
    """
    if not config.is_controller:
        raise LogDirectoryError(
            f"process.roles={','.join(config.process_roles)}: only controllers vote"
        )
    with stopped(config, disk) as directories:
        directory = config.metadata_log_dir / METADATA_DIRECTORY
        path = directory / QUORUM_STATE
        if disk.exists(path):
            raise LogDirectoryError(
                f"{path} is there. If it cannot be read, and there is no copy of it, move it away "
                "first; else start the node"
            )
        found = read_directory(
            directory, files=SnapshotFiles(directory, disk, rng), disk=disk, replays=False
        )
        facts = found.history.latest
        settings = quorum_settings(config)
        static = static_voter_set(settings.static_voters, settings.listener_name)
        voters = facts.voters or static
        me = ReplicaKey(config.node_id, directories.ids[config.metadata_log_dir])
        is_new = found.verdict.end_offset == 0 and found.snapshot_id in {None, BOOTSTRAP_ID}
        if is_new or voters.is_sole(me):
            raise LogDirectoryError(
                f"{path} is not needed: node {me.id} "
                + ("is the only voter" if voters.is_sole(me) else "never took part")
                + ". Start it"
            )
        try:
            election = abstain_until(epoch, found.last_epoch)
        except AbstentionError as error:
            raise LogDirectoryError(str(error)) from error
        file = QuorumStateFile(directory, disk)
        file.write(election, kraft_version=facts.kraft_version, voters=voters)
