"""Versions of Fetch that its code distinguishes; the docstring of `fetch.py` lists all versions.

Each is the first version with the feature of that name.
"""

from typing import Final

LOG_START: Final = 5
SESSIONS: Final = 7
ZSTD: Final = 10
READ_REPLICA: Final = 11
FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13
REPLICA_STATE: Final = 15
NODE_ENDPOINTS: Final = 16
