"""CreateTopics (key 19): the schemas of all versions."""

REQUEST = """
19 CreateTopics req 2-7 f5 made |
    Topics:[]{
        Name:str, NumPartitions:i32, ReplicationFactor:i16,
        Assignments:[]{PartitionIndex:i32, BrokerIds:[]i32},
        Configs:[]{Name:str, Value:str?}
    },
    timeoutMs:i32=60000, validateOnly:bool
"""

RESPONSE = """
19 CreateTopics rsp 2-7 f5 |
    ThrottleTimeMs:i32,
    Topics:[]{
        Name:str, TopicId:uuid 7+, ErrorCode:i16, ErrorMessage:str?,
        TopicConfigErrorCode:i16@0 5+, NumPartitions:i32=-1 5+, ReplicationFactor:i16=-1 5+,
        Configs:[]{
            Name:str, Value:str?, ReadOnly:bool, ConfigSource:i8=-1, IsSensitive:bool
        }? 5+
    }
"""

MIRRORED = "topics topic name"
