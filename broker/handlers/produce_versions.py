"""Versions of Produce that its code distinguishes; the docstring of `produce.py` lists all.

Each is the first version with the feature of that name.
"""

from typing import Final

LOG_START: Final = 5
ZSTD: Final = 7
RECORD_ERRORS: Final = 8
FLEXIBLE: Final = 9
CURRENT_LEADER: Final = 10
TOPIC_IDS: Final = 13
