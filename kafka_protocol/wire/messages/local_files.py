"""Files of a log directory that have schemas."""

RECORDS = (
    """
- ProducerSnapshot 1 f- |
    Crc:u32,
    ProducerEntries:[]{
        ProducerId:i64, Epoch:i16, LastSequence:i32, LastOffset:i64, OffsetDelta:i32,
        Timestamp:i64, CoordinatorEpoch:i32, CurrentTxnFirstOffset:i64
    }
""",
    """
- QuorumStateData 0-1 f0 |
    ClusterId:str 0, LeaderId:i32=-1, LeaderEpoch:i32=-1, VotedId:i32=-1,
    VotedDirectoryId:uuid 1+, AppliedOffset:i64 0,
    CurrentVoters:[]{VoterId:i32}? 0
""",
)
