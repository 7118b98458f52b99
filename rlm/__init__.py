"""The RemoteLogManager: copies, expires and reads remote segments, in the tier process.

Floor 3.
"""
