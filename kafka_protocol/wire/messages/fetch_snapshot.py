"""FetchSnapshot (key 59): the schemas of all versions."""

REQUEST = """
59 FetchSnapshot req 0-1 f0 quorum |
    ClusterId:str?@0=null, ReplicaId:i32=-1, MaxBytes:i32=0x7fffffff,
    Topics:[]{
        Name:str,
        Partitions:[]{
            Partition:i32, CurrentLeaderEpoch:i32,
            SnapshotId:{EndOffset:i64, Epoch:i32},
            Position:i64, ReplicaDirectoryId:uuid@0 1+
        }
    }
"""

RESPONSE = """
59 FetchSnapshot rsp 0-1 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16,
    Topics:[]{
        Name:str,
        Partitions:[]{
            Index:i32, ErrorCode:i16,
            SnapshotId:{EndOffset:i64, Epoch:i32},
            CurrentLeader:{LeaderId:i32, LeaderEpoch:i32}@0,
            Size:i64, Position:i64, UnalignedRecords:rec
        }
    },
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:u16}@0 1+
"""
