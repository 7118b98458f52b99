"""DescribeCluster (key 60): the schemas of all versions."""

REQUEST = """
60 DescribeCluster req 0-2 f0 |
    IncludeClusterAuthorizedOperations:bool, EndpointType:i8=1 1+, IncludeFencedBrokers:bool 2+
"""

RESPONSE = """
60 DescribeCluster rsp 0-2 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?=null, EndpointType:i8=1 1+,
    ClusterId:str, ControllerId:i32=-1,
    Brokers:[]{BrokerId:i32, Host:str, Port:i32, Rack:str?=null, IsFenced:bool 2+},
    ClusterAuthorizedOperations:i32=-2147483648
"""
