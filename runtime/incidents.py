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
        "The process ends",
        f"{_DISK}; then restart this node",
    )
    METADATA_REPLICA_ENDS = (
        "the replica of the metadata log must end: {reason}",
        "The process ends; the other voters continue",
        "repair what the reason names, then restart this node",
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
