"""OffsetForLeaderEpoch (key 23): the schemas of all versions."""

REQUEST = """
23 OffsetForLeaderEpoch req 2-4 f4 partitions |
    ReplicaId:i32=-2 3+,
    Topics:[]{
        Topic:str,
        Partitions:[]{Partition:i32, CurrentLeaderEpoch:i32=-1, LeaderEpoch:i32}
    }
"""

RESPONSE = """
23 OffsetForLeaderEpoch rsp 2-4 f4 |
    ThrottleTimeMs:i32,
    Topics:[]{
        Topic:str,
        Partitions:[]{ErrorCode:i16, Partition:i32, LeaderEpoch:i32=-1, EndOffset:i64=-1}
    }
"""

MIRRORED = "topics topic topic / partitions partition partition"
