"""Structures inside opaque bytes of other messages."""

RECORDS = (
    """
- ConsumerProtocolAssignment 0-3 f- |
    AssignedPartitions:[]{Topic:str, Partitions:[]i32},
    UserData:bytes?=null
""",
    """
- ConsumerProtocolSubscription 0-3 f- |
    Topics:[]str, UserData:bytes?=null,
    OwnedPartitions:[]{Topic:str, Partitions:[]i32} 1+,
    GenerationId:i32=-1 2+, RackId:str?=null 3+
""",
    "- DefaultPrincipalData 0 f0 | Type:str, Name:str, TokenAuthenticated:bool",
)
