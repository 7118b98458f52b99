"""Errors of a broker in a test suite; of no package of ours, which would be imported."""


class BrokerError(Exception):
    """The broker cannot do what was asked; the message says why, and the remedy."""


class BrokerStartError(BrokerError):
    """The broker did not start; the message ends with the last lines of its log."""
