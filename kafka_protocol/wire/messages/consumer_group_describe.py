"""ConsumerGroupDescribe (key 69): the schemas of all versions."""

REQUEST = """
69 ConsumerGroupDescribe req 0-1 f0 groups | GroupIds:[]str, IncludeAuthorizedOperations:bool
"""

RESPONSE = """
69 ConsumerGroupDescribe rsp 0-1 f0 |
    ThrottleTimeMs:i32,
    Groups:[]{
        ErrorCode:i16, ErrorMessage:str?=null, GroupId:str, GroupState:str, GroupEpoch:i32,
        AssignmentEpoch:i32, AssignorName:str,
        Members:[]{
            MemberId:str, InstanceId:str?=null, RackId:str?=null, MemberEpoch:i32, ClientId:str,
            ClientHost:str, SubscribedTopicNames:[]str, SubscribedTopicRegex:str?=null,
            Assignment:{TopicPartitions:[]{TopicId:uuid, TopicName:str, Partitions:[]i32}},
            TargetAssignment:{
                TopicPartitions:[]{TopicId:uuid, TopicName:str, Partitions:[]i32}
            },
            MemberType:i8=-1 1+
        },
        AuthorizedOperations:i32=-2147483648
    }
"""
