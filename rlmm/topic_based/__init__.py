"""The metadata manager whose truth is the topic `__remote_log_metadata`."""
