"""Envelope (key 58): the schemas of all versions.

MetadataEnd is ours: up to where (exclusive) the answering controller has applied the metadata log.
"""

REQUEST = """
58 Envelope req 0 f0 | RequestData:bytes, RequestPrincipal:bytes?, ClientHostAddress:bytes
"""

RESPONSE = """
58 Envelope rsp 0 f0 | ResponseData:bytes?=null, ErrorCode:i16, MetadataEnd:i64@10000=-1
"""
