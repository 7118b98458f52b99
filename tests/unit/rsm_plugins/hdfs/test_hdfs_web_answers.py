"""What WebHDFS makes of answers that HDFS did not give."""

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rsm_plugins.api import RemoteResourceNotFoundError, RemoteStorageError
from rsm_plugins.fsspec.calls import CallLimits
from rsm_plugins.fsspec.errors import Meaning, meaning_of
from rsm_plugins.hdfs.plugin import WebHdfsStore
from rsm_plugins.hdfs.web_fs import WebHdfsFileSystem


class _NothingHere(BaseHTTPRequestHandler):
    status = 404

    def _answer(self) -> None:
        body = b"<html>none<br></html>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def store() -> Iterator[WebHdfsStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NothingHere)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    fs = WebHdfsFileSystem("127.0.0.1", server.server_address[1], timeout_s=10)
    made = WebHdfsStore(fs, "/store", rename=True, limits=CallLimits(10))
    yield made
    made.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_404_of_a_proxy_is_no_missing_file(store: WebHdfsStore) -> None:
    for call in (
        store.check,
        lambda: store.get("key"),
        lambda: store.delete(["key"]),
        lambda: list(store.list_objects()),
        lambda: store.put("key", io.BytesIO(b"x")),
    ):
        with pytest.raises(RemoteStorageError, match="not Hadoop's") as failed:
            call()
        assert not isinstance(failed.value, RemoteResourceNotFoundError)


def test_who_names_no_data_node_is_told_apart_from_a_failure_that_passes(
    store: WebHdfsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_NothingHere, "status", 200)
    with pytest.raises(ValueError, match="HttpFS") as failed:
        store.fs.cat_file("/store/key", 0, 10)
    assert meaning_of(failed.value) is Meaning.FATAL
