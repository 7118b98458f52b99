"""What brokers are told of a reader of the tail."""

import pytest

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicIdPartition, TopicPartition
from pipeline.read import split as reading
from pipeline.values import ClusterAddress, Isolation, Source, Split, TailPiece


@pytest.mark.parametrize("client_id", ["me", None])
def test_a_tail_is_read_under_the_users_client_id(
    monkeypatch: pytest.MonkeyPatch, client_id: str | None
) -> None:
    def refuse(bootstrap: str, said: str) -> None:
        raise ClusterError(f"{bootstrap} heard of {said}")

    monkeypatch.setattr(reading, "BlockingClient", refuse)
    client = {} if client_id is None else {"client.id": client_id}
    source = Source(None, ClusterAddress("h:1", client), "", Isolation.READ_UNCOMMITTED, True)
    piece = TailPiece(TopicIdPartition(bytes(16), 0, "t"), 0, 9)
    rows = reading.read_split(Split(TopicPartition("t", 0), (piece,), 1), source, ("offset",))
    with pytest.raises(ClusterError, match=f"h:1 heard of {client_id or 'tidemark-pipeline'}"):
        next(rows)
