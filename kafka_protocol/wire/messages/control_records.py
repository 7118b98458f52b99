"""Values of control records."""

RECORDS = (
    "- EndTxnMarker 0 f- | CoordinatorEpoch:i32",
    "- KRaftVersionRecord 0 f0 | Version:i16, KRaftVersion:i16",
    """
- LeaderChangeMessage 0-1 f0 |
    Version:i16, LeaderId:i32,
    Voters:[]{VoterId:i32, VoterDirectoryId:uuid 1+},
    GrantingVoters:[]{VoterId:i32, VoterDirectoryId:uuid 1+}
""",
    "- SnapshotFooterRecord 0 f0 | Version:i16",
    "- SnapshotHeaderRecord 0 f0 | Version:i16, LastContainedLogTimestamp:i64,"
    " ClusterId:str?@10017=null",
    """
- VotersRecord 0 f0 |
    Version:i16,
    Voters:[]{
        VoterId:i32, VoterDirectoryId:uuid,
        Endpoints:[]{Name:str, Host:str, Port:u16},
        KRaftVersionFeature:{MinSupportedVersion:i16, MaxSupportedVersion:i16}
    }
""",
)
