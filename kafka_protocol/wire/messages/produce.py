"""Produce (key 0): the schemas of all versions."""

REQUEST = """
0 Produce req 3-13 f9 partitions |
    TransactionalId:str?=null, Acks:i16, TimeoutMs:i32,
    TopicData:[]{Name:str 3-12, TopicId:uuid 13+, PartitionData:[]{Index:i32, Records:rec?}}
"""

RESPONSE = """
0 Produce rsp 3-13 f9 |
    Responses:[]{
        Name:str 3-12, TopicId:uuid 13+,
        PartitionResponses:[]{
            Index:i32, ErrorCode:i16, BaseOffset:i64, LogAppendTimeMs:i64=-1,
            LogStartOffset:i64=-1 5+,
            RecordErrors:[]{BatchIndex:i32, BatchIndexErrorMessage:str?=null} 8+,
            ErrorMessage:str?=null 8+,
            CurrentLeader:{LeaderId:i32=-1, LeaderEpoch:i32=-1}@0 10+
        }
    },
    ThrottleTimeMs:i32,
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:i32, Rack:str?=null}@0 10+
"""

MIRRORED = """
topic_data>responses topic name,topic_id / partition_data>partition_responses partition index
"""
