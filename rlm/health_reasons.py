"""In which ways a tier, or a partition of it, may be unhealthy.

Wording only; see `rlmm.health_text`.
"""

from rlmm.health_text import HealthReason

_TRIED_AGAIN = "it is tried again"
_NEWEST_METADATA = "bring back the newest metadata directory"


class TierReason(HealthReason):
    """What the tier finds."""

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
        "`leader-epoch-checkpoint` is lost or old, and no remote segment tells what it said",
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
        f"see that the replicas of the partition are in sync; {_TRIED_AGAIN}",
    )
    INCARNATION = (
        "tier-incarnation cannot be written: {error}",
        "no pair can be taken, so nothing is copied or expired",
        f"free or repair the disk of metadata.log.dir; {_TRIED_AGAIN}",
    )
    NEWER_OWNER = (
        "a newer owner is there",
        "another tier wrote records of a higher pair",
        "end the stale process, or the other broker that works on these directories; "
        f"{_TRIED_AGAIN}",
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
        f"cleanup.policy is delete; {_TRIED_AGAIN}",
    )
    TAKING_OVER = (
        "taking over: {error}",
        "the store or the metadata fail while the new owner settles",
        f"repair what the reason names; {_TRIED_AGAIN}",
    )
    COPY = (
        "copy: {error}",
        "the last copy failed; `RemoteCopyErrorsPerSec` and the first ERROR line of the outage "
        "name the store's error; produce continues, local disk grows",
        f"repair the store, or its settings and permissions; {_TRIED_AGAIN}",
    )
    COPY_WAITS = (
        "copying waits for the store, {count} partitions: {error}",
        "the store fails; one partition after the other tries it, with pauses of up to 30 s, and "
        "nothing else is copied; produce continues, local disk grows",
        f"repair the store, or its settings and permissions; {_TRIED_AGAIN}",
    )
    DISK_FILLS = (
        "the disk of {path} is full in {hours} h at the present rate of {rate} MB/s",
        "the tier is unhealthy, so that less or nothing expires locally; the rate is that of the "
        "last "
        "ten minutes, and nothing is said above a week",
        "repair what else is unhealthy before that; else enlarge the disk, or end what writes",
    )
    READS = (
        "reads of the store fail, {count} since the last that worked: {error}",
        "consumers of offsets that are only remote wait and get code 56; said for a minute after "
        "the last read that failed",
        f"repair the store, or its settings and permissions; {_TRIED_AGAIN} by each consumer",
    )
    EXPIRE_WAITS = (
        "deleting waits for the store, {count} partitions: {error}",
        "the store fails to delete; one partition after the other tries it, with pauses of up to "
        "30 s",
        f"see that the store can be reached and permits deletion; {_TRIED_AGAIN}",
    )
    EXPIRE = (
        "expire: {error}",
        "deletions in the store failed",
        f"see that the store can be reached and permits deletion; {_TRIED_AGAIN}",
    )
    DELETIONS = (
        "{count} deletions fail for {minutes} min, the first of segment {segment} of {partition} "
        "from offset {first}: {error}",
        "the store refuses to delete: what retention, DeleteRecords or the deletion of a topic has "
        "ended stays there. Yellow after `tidemark.remote.delete.failing.ms` (10 min), red after "
        "twice that, or the copy maximum where that is longer",
        f"see that the store permits deletion, and to whom; {_TRIED_AGAIN}",
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
        f"mount the store, or correct its settings; {_TRIED_AGAIN}. Make no empty one; where it "
        "was really replaced: `tidemark remote claim`",
    )
    CLAIM_AWAY = (
        "claim: {error}",
        "the claim cannot be read or written; partitions are owned, nothing is copied or deleted",
        f"repair the store; {_TRIED_AGAIN}; a damaged claim: `tidemark remote claim`",
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
        f"repair what the reason names; {_TRIED_AGAIN}",
    )
    FEATURES_OFF = (
        "the metadata manager leaves methods out: {features}",
        "yellow: the manager is not the usual one, and lacks what `rlmm.api` lets it leave out",
        "give it these methods, or use the usual one (remote.log.metadata.manager.class.name)",
    )
    KAFKA_CONTROLLERS = (
        "the active controller is Apache Kafka's: it gives no leader epoch above those that were "
        "used before, keeps no list of removed topics, and does not settle at a registration in "
        "which log directories replicas are",
        "yellow: nothing is deleted on what a controller of Tidemark would have said. A partition "
        "whose leader epoch is too low stays unhealthy; the removals that this broker read are in "
        "a file "
        "of its own, and a topic that a snapshot only lacks is named; a replica that was served "
        "before its directory was noted, as Kafka's brokers do, begins again where its files are "
        "lost, and the tier, which finds its segments, is unhealthy",
        "nothing need be done; with controllers of Tidemark it ends (docs/tiering.md, Under the "
        "controllers of Apache Kafka)",
    )
    VALIDATING = (
        "log validation takes long: {validated} of {total} partitions are done after {minutes} min",
        "yellow: at its start, and under new leader epochs, the tier reads what the metadata topic "
        "says of each partition; before that, consumers above the log end and checks of positions "
        "wait, and nothing is copied",
        "see that the leader of __remote_log_metadata is there, that the store answers, and that "
        "the tier process gets CPU; it continues by itself",
    )
    PROCESS = (
        "tier process: {reason}",
        "it is down, starting, or was killed for silence; the ERROR line before it names the cause",
        f"repair what the reason or that line names; {_TRIED_AGAIN}",
    )
    HANGING = (
        "{count} plugin calls hang",
        "calls run past their limit; the tier restarts itself when half of a pool is taken by them",
        "see that the store answers",
    )
