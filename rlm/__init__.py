"""The RemoteLogManager: copies, expires and reads remote segments; lives in the tier process.

Floor 3.
"""
