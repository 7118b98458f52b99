"""DescribeGroups (key 15): the schemas of all versions."""

REQUEST = """
15 DescribeGroups req 0-6 f5 groups | Groups:[]str, IncludeAuthorizedOperations:bool 3+
"""

RESPONSE = """
15 DescribeGroups rsp 0-6 f5 |
    ThrottleTimeMs:i32 1+,
    Groups:[]{
        ErrorCode:i16, ErrorMessage:str?=null 6+, GroupId:str, GroupState:str, ProtocolType:str,
        ProtocolData:str,
        Members:[]{
            MemberId:str, GroupInstanceId:str?=null 4+, ClientId:str, ClientHost:str,
            MemberMetadata:bytes, MemberAssignment:bytes
        },
        AuthorizedOperations:i32=-2147483648 3+
    }
"""

MIRRORED = "groups - >group_id"
