"""The group coordinator's decisions: pure, of one partition of `__consumer_offsets` each.

`state.GroupState` takes a request and the times, and returns a `decision.Decision`. The package
must not depend on sockets, logs, clocks or threads. docs/groups.md explains how groups work.
"""
