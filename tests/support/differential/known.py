"""Where our answers differ from Kafka's, and why: `docs/decisions/differences-from-kafka.md`.

Each rule is an expression that matches whole lines of a comparison. Whatever matches none is a
failure, and so is a rule that matches nothing any more.
"""

import re
from collections.abc import Mapping

KNOWN = {
    "a null name with no id is a wrong name, not a crash": r"METADATA v1[0-3] neither: .*",
    "an unknown isolation level is read uncommitted": (
        r"(FETCH|LIST_OFFSETS) v\d+ isolation (2|-1): .*"
    ),
    "what is pending upload is known before the first copy after a start": (
        r"LIST_OFFSETS v11 tiered -6: .*"
    ),
    "an invented session of any number is not found": (
        r"FETCH v\d+ session 2147483647 epoch 5: .*"
    ),
    "an empty name is an invalid topic": (r"DESCRIBE_TOPIC_PARTITIONS v0 \[''\]: \.topics\[0\].*"),
    "keys that Kafka 4.3.1 does not have": (
        r"(DESCRIBE_CONFIGS|CREATE_TOPICS) .*configs\.(log\.)?(remote\.copy\.lag|tidemark\.).*"
    ),
    "settings of the two processes themselves": (
        r"DESCRIBE_CONFIGS v4 whole broker: \.results\[0\]\.configs\.(share\.coordinator\.|"
        r"remote\.log\.storage\.manager\.class|remote\.log\.manager\.task|listeners|"
        r"remote\.log\.metadata\.manager\.listener\.name|"
        r"log\.(retention\.check|initial\.task|dirs)|group\.initial|controller\.quorum|"
        r"max\.connections\.per\.ip|queued\.max\.request\.bytes|metadata\.log\.dir).*"
    ),
    "a plugin's settings are shown": (
        r"DESCRIBE_CONFIGS v4 whole broker: \.results\[0\]\.configs\.rsm\.config\.dir\..*"
    ),
    "settings of clients and groups are not served": (
        r"(DESCRIBE|INCREMENTAL_ALTER)_CONFIGS v\d resource (8 '1'|16 'c'|32 'g'): .*"
    ),
    "a topic that is only checked gets no id": r"CREATE_TOPICS v7 .*topic_id: .*",
    "a setting is shown as it was understood": (
        r"CREATE_TOPICS v7 config (retention\.ms= 7 |cleanup\.policy=delete,delete|"
        r"unclean\.leader\.election\.enable=TRUE|min\.cleanable\.dirty\.ratio=[01]): .*\.value: .*"
    ),
    "10,000 partitions still fit into one request": r"CREATE_TOPICS v\d partitions 10000: .*",
    "a setting without a word in it is accepted": (
        r"INCREMENTAL_ALTER_CONFIGS v\d topic 2 cleanup\.policy=: .*"
    ),
    "a list of replicas is checked to its end": (
        r".*leader\.replication\.throttled\.replicas=0:1,: .*"
    ),
    "a wrong resource is named by its own error": (
        r"(INCREMENTAL_)?ALTER_CONFIGS v\d resource (2 ''|4 '99'): .*"
    ),
    "numbers of threads have no effect here": (
        r"INCREMENTAL_ALTER_CONFIGS v1 broker '1?' (num\.io\.threads=3|log\.cleaner\.threads=0): .*"
    ),
    "only known settings are set over the wire": (
        r"INCREMENTAL_ALTER_CONFIGS v1 broker '1?' (no\.such\.key=1|zookeeper\.connect=x): .*"
        r"|ALTER_CONFIGS v2 broker no\.such\.key=1: .*"
    ),
    "a resource that is asked for twice is described once": (
        r"DESCRIBE_CONFIGS v\d twice: \.results: .*"
    ),
    "a resource named twice is refused once": (r"INCREMENTAL_ALTER_CONFIGS v\d resource twice: .*"),
    "internal topics are not the clients', also before they exist": (
        r"(PRODUCE|DELETE_RECORDS) v\d+ (topic )?__consumer_offsets.*"
    ),
    "a partition without records is answered": r"PRODUCE v\d+ null records: .*",
    "bytes after the batch are refused": r"PRODUCE v\d+ (\w+ )*one byte more: .*",
    "an absurd length is an invalid record": r"PRODUCE v\d+ (\w+ )*length 2147483647: .*",
    "an unknown codec is named as such": r"PRODUCE v\d+ (\w+ )*codec bits \d: .*",
    "a batch is validated by its header": (
        r"PRODUCE v\d+ (\w+ )*(max timestamp \d+|log append time bit): .*"
    ),
    "a refused partition tells no log start": r"PRODUCE v\d+ .*log_start_offset: kafka=0 ours=-1",
    "a repeated batch is answered without a time": (
        r"PRODUCE v9 sequence \d epoch 0: .*log_append_time_ms: kafka='a time' ours=-1"
    ),
    "a producer id without an epoch is an invalid record": (r"PRODUCE v9 sequence 0 epoch -1: .*"),
    "the first sequence of a log that never held a record is 0": (
        r"PRODUCE v9 first sequence [05] of an empty log: .*"
    ),
    "a topic without partitions is answered": r"PRODUCE v\d+ no partitions: .*",
    "of a partition named twice both batches are kept": (
        r"PRODUCE v\d+ (partition|topic) twice: .*"
    ),
    "the cluster's own topics are refused": (
        r"DELETE_TOPICS v\d \['__cluster_metadata'\]: .*"
        r"|CREATE_PARTITIONS v\d name __(consumer_offsets|(cluster|remote_log)_metadata): .*"
    ),
    "too many partitions are refused by name": (
        r"CREATE_PARTITIONS v\d plain to (10003|2147483647): .*: kafka=-1 ours=44"
    ),
}


def sort_out(lines: list[str], known: Mapping[str, str] = KNOWN) -> tuple[list[str], list[str]]:
    """The lines that no rule explains, and the rules that explain no line."""
    left, unused = lines, []
    for reason, pattern in known.items():
        rule = re.compile(pattern, re.DOTALL)
        kept = [line for line in left if not rule.fullmatch(line)]
        if len(kept) == len(left):
            unused.append(reason)
        left = kept
    return left, unused
