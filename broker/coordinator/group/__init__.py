"""The group coordinator's decisions: pure, of one partition of `__consumer_offsets` each.

`state.GroupState` is the door: a request and a time go in, a `decision.Decision` comes out. Nothing
in here knows a socket, a log, a clock or a thread. docs/groups.md tells how it works.
"""
