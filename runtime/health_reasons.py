"""The reasons that health gives: text, meaning and remedy of each.

`docs/health-reasons.md` is made from this enum. The tier sends its reasons over a link and puts the
name of a partition before them: `HealthReason.text` has the remedy at its end. The node's own
checks return `HealthReason.line`, which has the remedy beside the text.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from string import Formatter
from typing import Final, NewType

from runtime.raised import named

RED: Final = "red"
YELLOW: Final = "yellow"
REMEDY: Final = "Remedy: "
"""Stands before the remedy in a `HealthText`."""

HealthText = NewType("HealthText", str)
"""A text that ends with its remedy; only `HealthReason.text` and `joined` make one."""

HEALTHY = HealthText("")


class HealthLine(str):
    """A text whose remedy stands beside it; equal to a str of the same characters.

    Attributes:
        remedy: "" where the text has one in a fact.
    """

    __slots__ = ("remedy",)
    remedy: str


class _Facts(dict[str, object]):
    """Facts by name. A text that lacks one is better than none."""

    def __missing__(self, name: str) -> str:
        return "?"


def filled(form: str, facts: Mapping[str, object]) -> str:
    """Return a form with its facts; `?` for one that is not given, errors as of `named`."""
    texts = (
        (name, named(fact) if isinstance(fact, BaseException) else fact)
        for name, fact in facts.items()
    )
    return Formatter().vformat(form, (), _Facts(texts))


_LOG = "the log of this node has the cause"
_LATER = "it is tried again"
_NEWEST_METADATA = "bring back the newest metadata directory"
_MACHINE = "see that the processes of the other nodes run and that this node reaches them"
_CLEANING = f"{_LOG}; a partition that cannot be cleaned grows until its log can be read"
_DISK = (
    "enlarge the disk, lower retention.ms or retention.bytes of the largest topics, or end what "
    "writes"
)
_OFFLINE = (
    "the reason of each partition names the directory; bring it back, or see `tidemark directories`"
)
_PUT_ASIDE = "look whether the directories are wanted; remove them when they are not"
_REPLICAS = "start the brokers that have the other replicas"


class HealthReason(Enum):
    """One way to be unhealthy, as (text, meaning, remedy), or with part and status after them.

    Text and remedy hold facts as `{name}`; the meaning is for the documentation alone.

    Attributes:
        text_form: what is wrong, with `{facts}`.
        meaning: what the reader cannot see in the text.
        remedy_form: what to do, with `{facts}`.
        part: of `/health`, under which it stands.
        status: `red` or `yellow`; of a reason that may be both, `red`.
    """

    def __init__(
        self, text: str, meaning: str, remedy: str, part: str = "tier", status: str = RED
    ) -> None:
        """Name the columns of a member."""
        self.text_form, self.meaning, self.remedy_form = text, meaning, remedy
        self.part, self.status = part, status

    def said(self, **facts: object) -> str:
        """The fault, without the remedy: for log lines."""
        return filled(self.text_form, facts)

    def text(self, **facts: object) -> HealthText:
        """The fault, and the remedy at its end."""
        return HealthText(f"{self.said(**facts)}. {REMEDY}{self._remedy(facts)}")

    def line(self, **facts: object) -> HealthLine:
        """The fault, and the remedy beside it unless a fact has one."""
        line = HealthLine(self.said(**facts))
        line.remedy = "" if REMEDY in line else self._remedy(facts)
        return line

    def _remedy(self, facts: dict[str, object]) -> str:
        return filled(self.remedy_form, facts)

    # -- the broker and the controller ------------------------------------------------------------

    NOT_COMPACTED = (
        "{partition} is not compacted until the next start: {why}",
        "a pass over the log cannot succeed; records are served and taken, the log grows",
        _CLEANING,
        "compaction",
        YELLOW,
    )
    NOT_COMPACTED_YET = (
        "{partition} is not compacted, it is tried again: {why}",
        "a file of the log could not be read",
        _CLEANING,
        "compaction",
        YELLOW,
    )
    MORE_NOT_COMPACTED = (
        "and {count} more partitions are not compacted",
        "as those that are named",
        _CLEANING,
        "compaction",
        YELLOW,
    )
    CLEANER_PROCESS = (
        "the cleaner process fails, it is tried again: {why}",
        "the kernel killed it, usually because memory ran out",
        _CLEANING,
        "compaction",
        YELLOW,
    )
    LAST_EPOCH = (
        "epoch {epoch} is the last: no controller is elected any more; format the controllers as "
        "ones that lost their disks",
        "the quorum has counted to the end, or its files are damaged",
        "format the controllers as ones that lost their disks (docs/controllers.md)",
        "controller",
    )
    FEATURE_LEVEL = (
        "{feature} is finalised at level {level}, and this version serves {low} to {high}: this "
        "controller follows and never leads; upgrade this node",
        "the cluster is newer than this node, which follows and never leads",
        "upgrade this node",
        "controller",
    )
    DISK_FILLS_TODAY = (
        "the disk of {path} is full in {hours} h at the rate of the last hour, {rate} MB/s",
        "producers are refused when it is full",
        _DISK,
        "disk",
        YELLOW,
    )
    DISK_NEARLY_FULL = (
        "the disk of {path} is nearly full: {part} is free, {mb} MB",
        "less than 5 % of it is free, and producers are refused when it is full",
        _DISK,
        "disk",
        YELLOW,
    )
    NO_ELIGIBLE_LEADERS = (
        "{feature} is not finalised, and {count} partition(s) led here have replicas: acknowledged "
        "records can be lost where the in-sync replicas are lost one after the other. When all "
        "nodes have this version: `tidemark features upgrade`",
        "acknowledged records can be lost where in-sync replicas are lost one after the other",
        "run `tidemark features upgrade` when all nodes have this version",
        "features",
        YELLOW,
    )
    LEADER_SILENT = (
        "broker {leader} cannot be followed: {why}",
        "that leader does not answer, or refuses",
        _MACHINE,
        "followers",
        YELLOW,
    )
    NOT_FOLLOWED = (
        "{partition}: {why}",
        "this replica cannot continue behind its leader; it is not in sync, and the text says why",
        f"{_LOG}; where the text names no file, {_MACHINE}",
        "followers",
        YELLOW,
    )
    FOLLOWING_WAITS = (
        "{count} partition(s) cannot be followed before the remote tier has their state: "
        "{partition}: {why}",
        "the tier of this broker is not up yet",
        f"{_MACHINE}; a fault of the tier has a reason of its own",
        "followers",
        YELLOW,
    )
    GROUPS_NOT_SERVED = (
        "groups of {partition} are not served: it could not be loaded",
        "clients of these groups get error 14 or 15 until it is loaded",
        f"{_LOG}; other brokers serve these groups where __consumer_offsets has replicas. Look at "
        "the disk, then restart",
        "groups",
    )
    GROUPS_DAMAGED = (
        "{partition} was damaged, and its groups continue without what was in the damaged places: "
        "places={count}, the log of this broker names them",
        "some committed offsets may be lost",
        f"{_LOG}; where offsets are missing, set them with the client's own tools, or `tidemark "
        "groups reset`",
        "groups-data",
        YELLOW,
    )
    DIRECTORY_OFFLINE = (
        "log directory {path} is offline: {why}",
        "a disk failed, is full, or can only be read; other replicas lead its partitions, where "
        "there are any",
        "`tidemark directories list` says which partitions are there; repair the disk, then "
        "restart this broker",
        "logs",
    )
    FENCED = (
        "broker {broker} is {state} for {ms} ms, so no client is sent here: the active "
        "controller's log says why",
        "this broker was fenced, or its registration is gone; it comes back by itself",
        _MACHINE,
        "membership",
    )
    METADATA_LOG = (
        "the metadata log failed: {error}",
        "the process ends",
        "restart this node; where it ends again, its log names the file",
        "metadata",
    )
    OFFLINE = (
        "{partition} is offline: {why}",
        "one partition cannot be used: files missing, damaged or of another time; the others are "
        "served",
        _OFFLINE,
        "partitions",
    )
    MORE_OFFLINE = (
        "and {count} more partitions are offline",
        "as those that are named; they often have one reason",
        _OFFLINE,
        "partitions",
    )
    PUT_ASIDE = (
        "{path} is no replica of this broker and was put aside by this start; unless its topic was "
        "deleted meanwhile, or its replica moved to other brokers, the metadata are not those that "
        "this broker had",
        "usually its topic was deleted while the broker was down",
        _PUT_ASIDE,
        "put-aside",
        YELLOW,
    )
    MORE_PUT_ASIDE = (
        "and {count} more partitions were put aside",
        "as those that are named",
        _PUT_ASIDE,
        "put-aside",
        YELLOW,
    )
    NO_QUORUM = (
        "no leader of the metadata quorum is known for {ms} ms (epoch {epoch}{last}): do a "
        "majority of the voters run, and do they reach each other?",
        "no topic can be made, no leader moves; clients of partitions that have a leader continue",
        "start the other voters, or see that this node reaches them",
        "quorum",
    )
    REGISTERED_WITHOUT_TIER = (
        "the metadata do not say that this broker has a remote tier: a controller of Apache Kafka "
        "took its registration. Controllers of Tidemark put no tiered topic here then: restart "
        "this broker while one of them leads",
        "a controller of Apache Kafka took the registration",
        "restart this broker while a controller of Tidemark leads",
        "registration",
        YELLOW,
    )
    TOO_FEW_BROKERS = (
        "{topic} is not made yet: {key}={factor}, and {count} broker(s) with a remote tier serve "
        "({serving}). Nothing is tiered until then: start the others, or set it lower on all "
        "brokers",
        "too few brokers with a tier serve; nothing is tiered until then",
        "start as many brokers as __remote_log_metadata has replicas",
        "remote-metadata",
        YELLOW,
    )
    METADATA_WITHOUT_LEADER = (
        "{topic} has no leader in partitions {partitions}, which lie on broker {brokers}: bring it "
        "back. Until then nothing is copied, deleted or found in the store for the topics' "
        "partitions whose segments are recorded there; clients are served from local data",
        "the brokers that have these partitions are away; nothing is copied or deleted that is "
        "recorded there",
        "start as many brokers as __remote_log_metadata has replicas: those that the text names",
        "remote-metadata",
    )
    METADATA_LED_ELSEWHERE = (
        "{topic} is led in partitions {partitions} by broker {leader}, which has no listener for "
        "tiers: a broker of Apache Kafka, or one without a tier. Have a broker of Tidemark with a "
        "tier lead them (kafka-reassign-partitions.sh, docs/taking-over.md). Until then nothing is "
        "copied, deleted or found in the store for the topics' partitions whose segments are "
        "recorded there, and those that get a leader here wait",
        "a broker of Apache Kafka, or one without a tier, leads them",
        "have a broker of Tidemark with a tier lead them (docs/taking-over.md), or start as many "
        "brokers as __remote_log_metadata has replicas",
        "remote-metadata",
    )
    BELOW_MIN_ISR = (
        "{count} partition(s) led here have fewer in-sync replicas than min.insync.replicas, and "
        "take no records of acks=all: {names}. Start the brokers of their other replicas",
        "producers with acks=all get errors",
        _REPLICAS,
        "replicas",
    )
    OUT_OF_SYNC = (
        "{count} partition(s) led here have replicas that are not in sync: {names}",
        "one more loss, and producers are refused or records lost",
        f"{_REPLICAS}; one that runs catches up by itself",
        "replicas",
        YELLOW,
    )
    SNAPSHOT = (
        "snapshot of the metadata: {problem}",
        "the disk takes no snapshot of the metadata; nothing is lost, the metadata log grows",
        "make room on the disk of metadata.log.dir",
        "snapshots",
    )

    # -- the tier ---------------------------------------------------------------------------------

    LEADER_EPOCH = (
        "leader epoch too low: it is {leader_epoch}, and {used} was used before, so the cluster "
        "metadata are of an earlier time. Nothing is written until then; {step}",
        "the cluster metadata are an older copy than the log or its remote records",
        f"wait for a higher leader epoch; where it stays so, {_NEWEST_METADATA}",
    )
    LOG_END = (
        "log end lost: offsets below {offset} were given before, the log here ends at {log_end} or "
        "has others; its directory may be an older copy",
        "the partition's directory is an older copy, or its end is lost",
        "bring back the right directory, or `tidemark remote adopt` to begin at {begin}",
    )
    COPIES = (
        "log end lost: offsets below {offset} were given before, and no local record of them is "
        "left; those that were copied are in the remote store",
        "all local copies of the partition are lost, the store is whole",
        "bring back one of the directories, or `tidemark remote restore-partition` to begin at "
        "{begin}",
    )
    CHAIN = (
        "chain lost: {problem}; {why}",
        "`leader-epoch-checkpoint` is lost or old, and no remote segment has its content",
        "bring back leader-epoch-checkpoint, `tidemark remote adopt` with the segment whose index "
        "is right, or DeleteRecords to {offset}",
    )
    LOG_START = (
        "log start unknown: its checkpoint is lost, no record carries it, and the remote segments "
        "do not show it",
        "`log-start-offset-checkpoint` is lost",
        "bring back the checkpoint, or DeleteRecords to {offset}",
    )
    HOLE = (
        "a hole between remote end and local start: metadata was lost, nothing is touched",
        "records of `__remote_log_metadata` were lost; the objects are still there",
        "bring back __remote_log_metadata, or DeleteRecords to {offset}",
    )
    LOG_START_REFUSED = (
        "the broker refuses the log start {offset}: it is above its high watermark",
        "retention, or a log start that records carry, is ahead of what is committed",
        f"see that the replicas of the partition are in sync; {_LATER}",
    )
    INCARNATION = (
        "tier-incarnation cannot be written: {error}",
        "no fence can be taken, so nothing is copied or expired",
        f"free or repair the disk of metadata.log.dir; {_LATER}",
    )
    NEWER_OWNER = (
        "a newer owner is there",
        "another tier wrote records of a higher fence",
        f"end the stale process, or the other broker that works on these directories; {_LATER}",
    )
    MARKED = (
        "this topic id is marked as removed, and the topic exists: the cluster metadata are of an "
        "earlier time than its removal. Nothing of it is copied, raised or deleted",
        "the cluster metadata are of an earlier time than the deletion of the topic",
        f"delete the topic once more, or {_NEWEST_METADATA}",
    )
    METADATA = (
        "metadata: {error}",
        "writes to `__remote_log_metadata` time out, its end is not reached, or it lost records",
        "see that the leader of __remote_log_metadata is there, its disk has room, and its "
        f"cleanup.policy is delete; {_LATER}",
    )
    TAKING_OVER = (
        "taking over: {error}",
        "the store or the metadata fail while the new owner settles",
        f"repair what the reason names; {_LATER}",
    )
    COPY = (
        "copy: {error}",
        "the last copy failed; `RemoteCopyErrorsPerSec` and the first ERROR line of the outage "
        "name the store's error; produce continues, local disk grows",
        f"repair the store, or its settings and permissions; {_LATER}",
    )
    COPY_WAITS = (
        "copying waits for the store, {count} partitions: {error}",
        "the store fails; one partition after the other tries it, with pauses of up to 30 s, and "
        "nothing else is copied; produce continues, local disk grows",
        f"repair the store, or its settings and permissions; {_LATER}",
    )
    DISK_FILLS = (
        "the disk of {path} is full in {hours} h at the present rate of {rate} MB/s",
        "the tier is unhealthy, so that less or nothing expires locally; the rate is that of the "
        "last "
        "ten minutes, and nothing is said above a week",
        "repair what else is unhealthy before that; else enlarge the disk, or end what writes",
        "disk",
    )
    READS = (
        "reads of the store fail, {count} since the last that worked: {error}",
        "consumers of offsets that are only remote wait and get code 56; shown for 30 s after "
        "the last read that failed",
        f"repair the store, or its settings and permissions; {_LATER} by each consumer",
    )
    EXPIRE_WAITS = (
        "deleting waits for the store, {count} partitions: {error}",
        "the store fails to delete; one partition after the other tries it, with pauses of up to "
        "30 s",
        f"see that the store can be reached and permits deletion; {_LATER}",
    )
    EXPIRE = (
        "expire: {error}",
        "deletions in the store failed",
        f"see that the store can be reached and permits deletion; {_LATER}",
    )
    DELETIONS = (
        "{count} deletions fail for {minutes} min, the first of segment {segment} of {partition} "
        "from offset {first}: {error}",
        "the store refuses to delete: what retention, DeleteRecords or the deletion of a topic has "
        "ended stays there. Yellow after `tidemark.remote.delete.failing.ms` (10 min), red after "
        "twice that, or the copy maximum where that is longer",
        f"see that the store permits deletion, and to whom; {_LATER}",
    )
    CLAIM_REFUSED = (
        "claim: the store's claim {found} is none of these directories, whose last one is "
        "{claimed}: they are an older copy, or another machine writes as this broker; nothing is "
        "copied or deleted",
        "these directories are an older copy of this broker's, or a clone writes as this broker",
        "find the newest directories, or end the other machine; else `tidemark remote claim`",
    )
    CLAIM_MISSING = (
        "claim: the store holds no claim of this broker, and this broker has written one: number "
        "{claimed}; is the store mounted, is the bucket right?",
        "the store is not mounted, is another, or was emptied; nothing is copied or deleted, local "
        "segments are kept, remote reads fail",
        f"mount the store, or correct its settings; {_LATER}. Make no empty one; where it was "
        "really replaced: `tidemark remote claim`",
    )
    CLAIM_AWAY = (
        "claim: {error}",
        "the claim cannot be read or written; partitions are owned, nothing is copied or deleted",
        f"repair the store; {_LATER}; a damaged claim: `tidemark remote claim`",
    )
    OBJECT = (
        "remote segment {segment} from offset {first}: {fault}",
        "the store lost or changed an object",
        "restore it from the store's versions or a copy of it, the next read of it turns health "
        "green; or DeleteRecords to {offset}",
    )
    MORE_OBJECTS = (
        "and {count} more remote objects are missing or damaged",
        "as above, beyond the 100 that are named",
        "see that the right bucket or directory is mounted; restore the objects",
    )
    MORE_PARTITIONS = (
        "and {count} more partitions are unhealthy",
        "as those that are named, beyond the first 100",
        "begin with those that are named: they often have one reason",
    )
    CACHE_OFF = (
        "the {cache} on disk is off: {error}",
        "the directory of a cache fails; reads continue without it, slower",
        "repair the disk, restart the broker",
    )
    MANAGER = (
        "metadata manager: {error}",
        "the metadata manager cannot continue; the tier is started again",
        f"repair what the reason names; {_LATER}",
    )
    FEATURES_OFF = (
        "the metadata manager leaves methods out: {features}",
        "the manager is not the usual one, and lacks what `rlmm.api` lets it leave out",
        "give it these methods, or use the usual one (remote.log.metadata.manager.class.name)",
        "tier",
        YELLOW,
    )
    KAFKA_CONTROLLERS = (
        "the active controller is Apache Kafka's: it gives no leader epoch above those that were "
        "used before, keeps no list of removed topics, and does not settle at a registration in "
        "which log directories replicas are",
        "nothing is deleted on what a controller of Tidemark would have said. A partition "
        "whose leader epoch is too low stays unhealthy; the removals that this broker read are in "
        "a file "
        "of its own, and a topic that a snapshot only lacks is named; a replica that was served "
        "before its directory was noted, as Kafka's brokers do, begins again where its files are "
        "lost, and the tier, which finds its segments, is unhealthy",
        "nothing need be done; with controllers of Tidemark it ends (docs/tiering.md, Under the "
        "controllers of Apache Kafka)",
        "kafka-controllers",
        YELLOW,
    )
    VALIDATING = (
        "log validation takes long: {validated} of {total} partitions are done after {minutes} min",
        "at its start, and under new leader epochs, the tier reads what the metadata topic "
        "says of each partition; before that, consumers above the log end and checks of positions "
        "wait, and nothing is copied",
        "see that the leader of __remote_log_metadata is there, that the store answers, and that "
        "the tier process gets CPU; it continues by itself",
        "tier",
        YELLOW,
    )
    PROCESS = (
        "tier process: {reason}",
        "it is down, starting, or was killed for silence; the ERROR line before it names the cause",
        f"repair what the reason or that line names; {_LATER}",
    )
    HANGING = (
        "{count} plugin calls hang",
        "calls run past their limit; the tier restarts itself when half of a pool is taken by them",
        "see that the store answers",
    )
    MARKED_BUT_EXISTS = (
        "{topic} was being deleted, and exists: the cluster metadata are of an earlier time. "
        "Nothing of it is copied or deleted",
        "the metadata log is of an earlier time than the deletion",
        "delete the topic once more to continue, or bring back the newer metadata log",
    )
    UNKNOWN_TOPIC = (
        "{topic} has remote segments, and the cluster metadata know neither that it exists nor "
        "that it was removed: they are kept",
        "the metadata log is of an earlier time than the topic, or Apache Kafka or an unreleased "
        "version of ours deleted the topic",
        "Restore the metadata log, or give them up: tidemark remote forget {topic_id}",
    )
    MISSING_TOPIC = (
        "{topic} is missing in the cluster metadata, and its removal was not read: its remote "
        "segments are kept",
        "the topic was deleted while this broker was away or behind, and the snapshots of "
        "Apache Kafka's controllers do not list removals; or the metadata log is of an "
        "earlier time than the topic",
        "if the topic was deleted, give them up: tidemark remote forget {topic_id}; else restore "
        "the metadata log",
        "tier",
        YELLOW,
    )
    REMOVALS_NOT_TAKEN = (
        "the metadata log does not take what is known of removed topics: {error}",
        "the record is tried again at each pass; deleting their remote data continues",
        "see that the disk of metadata.log.dir can be written and the controllers reached",
    )
    MORE_TOPICS = (
        "and {count} more such topic ids",
        "as the lines before it, of which 20 are shown",
        "as in those lines; the next ones are shown then",
    )
    METADATA_DAMAGED = (
        "{name} cannot be read on: its batch at offset {offset} is damaged. Nothing is copied, "
        "raised or deleted for the partitions whose remote segments it lists",
        "bytes of that log changed on its disk; all other metadata partitions continue",
        "stop the broker and bring the directory of that partition back from a copy; without one "
        "start the broker again and see `tidemark log inspect {topic} {partition}`",
    )
    TIER_REFUSED = (
        "the clients of this tier are refused by {error}. Records of remote segments in "
        "partitions of {topic} that lie there are neither read nor written: nothing of theirs is "
        "copied or deleted",
        "its secret of the cluster is another one than this broker's",
        "put the same file (tidemark.cluster.secret.file) on all brokers, and restart those that "
        "had another one",
    )
    METADATA_END = (
        "{name}: its leader has not said for {seconds} s where its log ends. What deleted topics "
        "left in the remote store is not removed where its records are there",
        "the broker that leads that metadata partition is away, or answers no ListOffsets",
        "start the broker that leads it, and if it runs, restart this one",
    )


def joined(reasons: Iterable[HealthText]) -> HealthText:
    """Several texts as one."""
    return HealthText("; ".join(reasons))
