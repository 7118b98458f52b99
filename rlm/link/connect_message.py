"""The one message between broker and tier that holds a secret, kept apart so that it stays one."""

import msgspec


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker takes connections. Answer: Ack once the metadata manager took its settings.

    Attributes:
        client_settings: what the manager's Kafka clients need for these connections, by
            librdkafka's names. The token by which the broker knows them is among it.
    """

    client_settings: dict[str, str] = {}

    def __repr__(self) -> str:
        """The names alone."""
        return f"Connect({sorted(self.client_settings)})"
