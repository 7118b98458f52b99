"""DescribeLogDirs (key 35): the schemas of all versions."""

REQUEST = """
35 DescribeLogDirs req 1-5 f2 partitions | Topics:[]{Topic:str, Partitions:[]i32}?
"""

RESPONSE = """
35 DescribeLogDirs rsp 1-5 f2 |
    ThrottleTimeMs:i32, ErrorCode:i16 3+,
    Results:[]{
        ErrorCode:i16, LogDir:str,
        Topics:[]{
            Name:str,
            Partitions:[]{
                PartitionIndex:i32, PartitionSize:i64, OffsetLag:i64, IsFutureKey:bool
            }
        },
        TotalBytes:i64=-1 4+, UsableBytes:i64=-1 4+, IsCordoned:bool 5+
    }
"""
