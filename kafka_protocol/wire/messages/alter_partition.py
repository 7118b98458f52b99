"""AlterPartition (key 56): the schemas of all versions."""

REQUEST = """
56 AlterPartition req 2-3 f2 partitions |
    BrokerId:i32, BrokerEpoch:i64=-1,
    Topics:[]{
        TopicId:uuid,
        Partitions:[]{
            PartitionIndex:i32, LeaderEpoch:i32, NewIsr:[]i32 2,
            NewIsrWithEpochs:[]{BrokerId:i32, BrokerEpoch:i64=-1} 3+,
            LeaderRecoveryState:i8, PartitionEpoch:i32
        }
    }
"""

RESPONSE = """
56 AlterPartition rsp 2-3 f2 |
    ThrottleTimeMs:i32, ErrorCode:i16,
    Topics:[]{
        TopicId:uuid,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32, Isr:[]i32,
            LeaderRecoveryState:i8, PartitionEpoch:i32
        }
    }
"""
