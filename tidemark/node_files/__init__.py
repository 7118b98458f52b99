"""The files of a stopped node: formatting, log directories, offline logs."""
