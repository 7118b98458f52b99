"""Incidents: the events that are logged at ERROR, because a person must act.

A line says what happened and to what, what it means, and the remedy. `docs/health-reasons.md` lists
them. A test lets `log.error` and `log.exception` take nothing but these and the texts of
`HealthReason`.
"""

from enum import Enum

from runtime.health_reasons import REMEDY, filled

_LATER = "it is tried again"
_DISK = "look at the disk: room, permissions, the kernel's log"
_REPORT = "report it, with this line and the stack after it"


class Incident(Enum):
    """One event for the person on call, as (text, meaning, remedy).

    All three hold facts as `{name}`.

    Attributes:
        text_form: what happened, and to what.
        meaning: what follows from it.
        remedy_form: what to do.
    """

    def __init__(self, text: str, meaning: str, remedy: str) -> None:
        """Name the columns of a member."""
        self.text_form, self.meaning, self.remedy_form = text, meaning, remedy

    def line(self, **facts: object) -> str:
        """One line: text, meaning, remedy."""
        return filled(f"{self.text_form}. {self.meaning}. {REMEDY}{self.remedy_form}", facts)

    DEFECT = (
        "{what}",
        "It is a defect of this program: this step was not finished, the process continues",
        _REPORT,
    )
    PROCESS_DEFECT = (
        "the process ends",
        "It is a defect of this program; nothing is served from here until it is started again",
        f"start it again; {_REPORT}",
    )
    TASK_FAILED = (
        "task failed: name={task} error={error}",
        "This run of it is lost; the next one follows",
        f"repair what the error names; where it names a file, {_DISK}",
    )
    PART_NOT_STOPPED = (
        "a part did not stop cleanly: {error}",
        "The process ends; the next start reads logs again, which takes longer",
        _DISK,
    )
    DIRECTORY_OFFLINE = (
        "log directory is offline: path={path} reason={error}",
        "Its partitions are not served here; other replicas lead them, where there are any",
        "repair the disk and restart this broker; `tidemark directories list` names the partitions",
    )
    PARTITION_OFFLINE = (
        "partition is offline: {partition}: {reason}",
        "It is not served here; the other partitions are",
        "bring back the directory that the reason names, or see `tidemark directories`",
    )
    TOPIC_OFFLINE = (
        "topic is offline: {topic}: partitions={count}: {reason}",
        "Its partitions are not served here and lose nothing",
        "repair what the reason names, and restart this broker",
    )
    DISK_FAILED = (
        "disk failed, partition is offline: path={path} error={error}",
        "The partition is not served here; other replicas lead it, where there are any",
        f"{_DISK}; then restart this broker",
    )
    FSYNC_FAILED = (
        "fsync failed: partition={partition} error={error}",
        "Records since the last fsync may not be on the disk",
        f"{_DISK}; then restart this broker",
    )
    FLUSH_FAILED = (
        "flush failed: partition={partition} error={error}",
        "Records since the last flush may not be on the disk",
        f"{_DISK}; then restart this broker",
    )
    RETENTION_FAILED = (
        "retention failed: partition={partition} error={error}",
        f"Old segments stay on the disk, and {_LATER}",
        _DISK,
    )
    NO_CLEAN_STOP = (
        "no clean stop: path={path} error={error}",
        "The next start reads the logs of this directory again, which takes longer",
        _DISK,
    )
    DYNAMIC_SETTINGS = (
        "dynamic broker settings are ignored: {error}",
        "The broker runs with its earlier settings",
        "correct the setting with kafka-configs.sh",
    )
    TOPIC_SETTING = (
        "topic setting ignored: topic={topic} reason={error}",
        "The topic runs with the broker's value",
        "correct the setting with kafka-configs.sh",
    )
    GROUPS_NOT_LOADED = (
        "{partition} cannot be loaded: {error}",
        "Its consumer groups are not served here",
        f"{_DISK}; then restart this broker",
    )
    MOVE_FAILED = (
        "move failed: partition={partition} to={directory}: {error}",
        "The replica stays where it was, and is served",
        "repair what the error names, and ask for the move again",
    )
    TIER_SETTINGS = (
        "tier process refuses its settings: {reason}",
        "The remote tier is off: nothing is copied, local disk grows",
        "correct the settings that the reason names, and restart this broker",
    )
    TIER_SILENT = (
        "tier process is silent and is killed: silent_ms={ms}",
        "It is started again; remote reads and copies wait until then",
        "see that the machine has CPU and memory, and that the disk answers",
    )
    TIER_GONE = (
        "tier process is gone: {reason}; next_try_ms={ms}",
        "It is started again; remote reads and copies wait until then",
        "repair what the reason names; where it names no cause, look at the kernel's log",
    )
    METADATA_TOPIC_AWAY = (
        "metadata topic stays away, remote storage cannot work: {error}",
        "Nothing is copied or deleted in the remote store",
        "start the brokers that have __remote_log_metadata",
    )
    REMOTE_CACHE_DAMAGED = (
        "metadata cache is damaged: dir={path} {error}",
        "It is built from __remote_log_metadata again",
        _DISK,
    )
    METADATA_NODE_ENDS = (
        "the metadata node cannot continue: {error}",
        "The process ends; the other voters continue",
        f"repair what the error names; where it names a file, {_DISK}; then restart this node",
    )
    QUORUM_FAULT = (
        "metadata quorum: {text}",
        "This node refused what it received, and continues; the quorum may lack a voter",
        "see that each controller has its own node.id and the same cluster.id, and look at the "
        "disk of the node that the text names",
    )
    CONTROLLER_GIVES_UP = (
        "this controller cannot continue: {reason}",
        "It gives up leadership; another voter can lead",
        "restart this node; where it ends again, its reason names the cause",
    )
    SNAPSHOT_DAMAGED = (
        "damaged snapshot put aside: file={file} reason={reason}",
        "The node starts from the log or from another snapshot",
        _DISK,
    )
    OUTAGE = (
        "{what} fails: reason={reason}",
        "It is tried again, and a line says when it works",
        "repair what the reason names",
    )
    PROCESS_ENDS = (
        "the process ends: {error}",
        "Nothing is served from here until it is started again",
        "repair what the error names, and start it again",
    )
    EXHAUSTED = (
        "{what}: {error}",
        "The process has run out of a resource; no data is affected, and it is tried again",
        "{remedy}",
    )
    DESCRIPTORS = (
        "{what}: descriptors in use: {used}",
        "Clients connect again; the other descriptors are kept for files",
        "{remedy}",
    )
    STORAGE_FAILED = (
        "storage failed: doing={doing} error={error}",
        "The request was answered with KAFKA_STORAGE_ERROR, and clients try again",
        _DISK,
    )
    FILE_UNREADABLE = (
        "file cannot be read: path={path} error={error}",
        "The answer that it was part of broke off",
        _DISK,
    )
    GROUP_MEMORY = (
        "{what} are refused: groups use {used} bytes of tidemark.group.bytes.max={most}",
        "Existing groups and offsets are kept",
        "raise tidemark.group.bytes.max, delete groups, or lower offsets.retention.minutes",
    )
    GROUP_DAMAGE = (
        "{partition}: damage {outcome}: {what}",
        "Offsets or members in it are unknown here; groups continue without them",
        "see that the groups have the offsets that they need, and look at the disk",
    )
    OFFSETS_KEPT = (
        "{partition}: expired offsets were not removed: batches={count} first: {error}",
        f"They stay until the next check, and {_LATER}",
        "{remedy}",
    )
    OFFSETS_TOPIC = (
        "__consumer_offsets cannot be created: {error}",
        "No consumer group works until it exists",
        "{remedy}",
    )
    OWN_BROKER_ASKED = (
        "{api} in the name of this node's own broker was refused: broker_id={broker_id} "
        "peer={peer} client_id={client_id}",
        "This node's broker asks its controller directly, so another process uses its node.id",
        "give the other process a node.id of its own, or close the controller's port to it",
    )
    NO_CLUSTER_SECRET = (
        "broker {broker_id} was not registered: this node has a remote tier and no secret of the "
        "cluster",
        "The tiers of several brokers authenticate each other by that secret",
        "name its file in {key} on all brokers; `tidemark format --cluster-secret` makes one",
    )
    LEADER_EPOCH_REFUSED = (
        "the controller refuses a higher leader epoch: partition={partition} error={error}",
        "The log has records of a later epoch, so the partition is not led here",
        "see the active controller's log; health of this broker names the partition",
    )
    REMOVED_TOPICS = (
        "removed topics are not kept on the disk: {error}",
        f"Their remote segments are deleted later than they could be; {_LATER}",
        _DISK,
    )
    NOT_CLEANED = (
        "log is not cleaned until the next start: partition={partition} {reason}",
        "Its records are served; records that a later one replaces stay on the disk",
        "repair what the reason names, and restart this broker",
    )
    BATCH_DAMAGED = (
        "{partition}: {what}",
        "Reads that need it are refused; the batches before and after it are served",
        f"{_DISK}; replace this replica by another broker's, or see `tidemark log inspect`",
    )
    COPY_WAITS = (
        "the copy of a moved partition waits: partition={partition} path={path}: {reason}",
        "Nothing is deleted; the partition is served as soon as its files can be used",
        "repair what the reason names, and restart this broker",
    )
    CHECKPOINT_LOST = (
        "checkpoint is lost: path={path}: {reason}",
        "It is written again; what depends on its entries is read or validated again",
        _DISK,
    )
    PUT_ASIDE = (
        "this broker has no such replica, its files are put aside: partition={partition} "
        "path={path}",
        "Nothing is deleted; usually its topic was deleted while the broker was down",
        "look whether the directory is needed; remove it when it is not",
    )
    ACCEPTED_DAMAGED = (
        "the file of accepted losses is damaged: path={path} error={error}",
        "No loss counts as accepted, so the partition may stay offline",
        "give `tidemark log accept` again",
    )
    SALVAGED = (
        "segment is written again without its damage: path={path} damages={count} copy={copy}",
        "The damaged records are not served here; the copy keeps their bytes",
        "look at the disk; the records may be in another replica or in the remote store",
    )
    CONTROLLER_BARRED = (
        "this controller cannot lead: {problem}",
        "It follows; another voter has to lead",
        "upgrade this node, or do what the problem names",
    )
    SNAPSHOT_FAILED = (
        "cannot make a snapshot: file={file}",
        f"The metadata log grows, and {_LATER}",
        _DISK,
    )
    SNAPSHOT_NOT_CLEANED = (
        "what a snapshot replaces cannot be deleted",
        f"Old snapshots and segments of the metadata log stay, and {_LATER}",
        _DISK,
    )
    BOOTSTRAP_UNREADABLE = (
        "the records of the format step cannot be read: {problem}",
        "The log has records, so this start does not need them",
        "restore the file from another controller",
    )
    TIER_NOT_STARTED = (
        "the tier process cannot be started: {error}; next_try_ms={ms}",
        "Nothing is copied or read remotely until it runs",
        "see that descriptors, memory and disk are free",
    )
    TIER_ENDS = (
        "tier process ends itself: {reason}",
        "The broker starts another one; remote reads and copies wait until then",
        "repair what the reason names",
    )
    PLUGIN_HANGS = (
        "a call of the storage plugin hangs: {call}",
        "Its thread is given up; where too many hang the tier process is started again",
        "see that the remote store answers, and set a time-out in the plugin for each request",
    )
    CACHE_OFF = (
        "the {cache} cache on disk is switched off until the next start: {error}",
        "Remote reads ask the store more often",
        f"{_DISK}; then restart this broker",
    )
    REMOTE_OBJECT = (
        "remote object: partition={partition}: {fault}",
        "Reads of its offsets fail until it is back",
        "bring the object back; `tidemark remote audit` lists all that are missing or damaged",
    )
    REMOTE_BYTES = (
        "remote bytes are damaged and are not served: partition={partition} offset={offset} "
        "cause={cause}",
        "Fetches of these offsets are answered with CORRUPT_MESSAGE",
        "bring the object back; `tidemark remote audit --deep` lists all that are damaged",
    )
    REMOTE_STATE = (
        "the remote state of a partition is damaged: partition={partition} error={error}",
        "This replica is not in sync until a restart; its leader serves the partition",
        "see `tidemark remote audit --deep`, bring the objects back, and restart this broker",
    )
    CLIENT_REFUSED = (
        "a broker refuses the metadata client: client={client} {text}",
        "Nothing is copied or deleted in the remote store while no broker accepts it",
        "see that all brokers have the same cluster secret and security settings",
    )
    METADATA_MANAGER_ENDS = (
        "metadata manager ends: {error}",
        "Nothing is copied or deleted in the remote store until the tier process starts again",
        f"repair what the error names; where it names a file, {_DISK}",
    )
    METADATA_LOST = (
        "the metadata topic does not confirm what was read: partition={number} {reason}",
        "It is read from the beginning; copies and deletions of its partitions wait",
        "see whether a replica of __remote_log_metadata was lost or is an older copy",
    )
