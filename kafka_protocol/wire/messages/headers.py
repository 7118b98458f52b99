"""Request and response headers."""

RECORDS = (
    """
- RequestHeader 1-2 f2 |
    RequestApiKey:i16, RequestApiVersion:i16, CorrelationId:i32, ClientId:str?!nc
""",
    "- ResponseHeader 0-1 f1 | CorrelationId:i32",
)
