"""DeleteTopics (key 20): the schemas of all versions."""

REQUEST = """
20 DeleteTopics req 1-6 f4 partitions |
    Topics:[]{Name:str?=null, TopicId:uuid, RemoteData:i8@10000=0} 6+,
    TopicNames:[]str 1-5, TimeoutMs:i32
"""

RESPONSE = """
20 DeleteTopics rsp 1-6 f4 |
    ThrottleTimeMs:i32,
    Responses:[]{Name:str?6+, TopicId:uuid 6+, ErrorCode:i16, ErrorMessage:str?=null 5+}
"""

MIRRORED = """
topic_names>responses topic >name 0-5
topics>responses topic name,topic_id 6+
"""
