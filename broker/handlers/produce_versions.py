"""Versions of Produce at which its code decides something; the head of `produce.py` lists all.

Each is the first version that has what its name says.
"""

from typing import Final

LOG_START: Final = 5
ZSTD: Final = 7
RECORD_ERRORS: Final = 8
FLEXIBLE: Final = 9
CURRENT_LEADER: Final = 10
TOPIC_IDS: Final = 13
