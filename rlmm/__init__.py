"""Which remote segments exist, per leader epoch: the remote log metadata manager. Floor 2."""
