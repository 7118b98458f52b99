"""Events and effects as short texts for people."""

import re

_VOTER = r"Voter\(.*?kraft_versions=\(\d+, \d+\)\),? ?"
_SHORTER = (
    (re.compile(rf"VoterSet\(voters=\((?:{_VOTER})*\)\)"), "voters"),
    (re.compile(r"ReplicaKey\(id=(-?\d+), directory_id=b'[^']*'\)"), r"n\1"),
    (re.compile(r"Node\(id=-?\d+, host='(\w+)', port=\d+\)"), r"\1"),
    (re.compile(r"<ErrorCode\.(\w+): -?\d+>"), r"\1"),
    (re.compile(r"<Role\.(\w+): '\w+'>"), r"\1"),
    (
        re.compile(r"BatchFacts\(base_offset=(\d+), end_offset=(\d+), epoch=(\d+)[^()]*\)"),
        r"\1-\2e\3",
    ),
    (re.compile(r"SnapshotId\(end_offset=(\d+), epoch=(\d+)\)"), r"\1-\2"),
    (re.compile(r", data=b(?:'[^']*'|\"[^\"]*\")"), ""),
    (re.compile(r", (?:random=[\d.e-]+|max_(?:wait_ms|bytes)=\d+)"), ""),
    (re.compile(r", (?:\w+=None|batches=\(\)|log_start_offset=-1)"), ""),
)


def brief(thing: object) -> str:
    """An event or effect in one line."""
    text = repr(thing)
    for pattern, shorter in _SHORTER:
        text = pattern.sub(shorter, text)
    return text
