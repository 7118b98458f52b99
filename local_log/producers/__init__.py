"""What a log knows of its producers: state, snapshots, transactions."""
