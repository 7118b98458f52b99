import socket
from threading import Thread

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.wire_client import ClusterError, WireClient


def test_an_answer_to_another_question_is_not_taken() -> None:
    body = codec.response(ApiKey.API_VERSIONS).encode(codec.response(ApiKey.API_VERSIONS).cls(), 0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_late() -> None:
            connection, _ = server.accept()
            with connection:
                frame = connection.recv(1 << 16)
                correlation_id = int.from_bytes(frame[8:12], "big") - 1
                late = correlation_id.to_bytes(4, "big") + body
                connection.sendall(len(late).to_bytes(4, "big") + late)
                connection.recv(1)

        thread = Thread(target=answer_late)
        thread.start()
        address = server.getsockname()
        with WireClient(f"{address[0]}:{address[1]}") as client:
            request = codec.request(ApiKey.API_VERSIONS).cls()
            with pytest.raises(ClusterError, match="answers another question"):
                client.ask(address, ApiKey.API_VERSIONS, 0, request)
        thread.join(10)
        assert not thread.is_alive(), "the connection was kept"
