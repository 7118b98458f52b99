"""The quorum's wire in tests: a replica that answers as told, and a peer that misbehaves."""
