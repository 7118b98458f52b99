"""Producer state of a log: state, snapshots, transactions."""
