"""The parts from which processes of both kinds, brokers and controllers, are put together."""
