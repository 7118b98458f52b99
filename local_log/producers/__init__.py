"""The producers of a log: state, snapshots, transactions."""
