"""Catalogs that hang, refuse or fail: one line within a deadline."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipeline.errors import OptionError, StoreUnreachableError
from pipeline.jobs.catalog_calls import CatalogCalls
from pipeline.jobs.iceberg_catalog import open_iceberg
from pipeline.jobs.write_task import file_schema
from tests.support.brokers.process import until

pytest.importorskip("pyiceberg")


def threads() -> int:
    return sum(one.name == "pipeline-catalog" for one in threading.enumerate())


def test_a_call_that_hangs_ends_at_its_deadline_and_the_next_one_is_made() -> None:
    before, proceed = threads(), threading.Event()
    with closing(CatalogCalls("lake.sales.orders")) as calls:
        with pytest.raises(StoreUnreachableError, match=r"lake\.sales\.orders.*did not answer"):
            calls(proceed.wait, within_s=0.01)
        assert calls(lambda: 7) == 7
    proceed.set()
    until(lambda: threads() <= before, "both threads end")


def test_calls_that_come_back_are_made_in_one_thread() -> None:
    with closing(CatalogCalls("lake")) as calls:
        assert len({calls(threading.get_ident) for _ in range(3)}) == 1


def test_errors_of_a_call_come_as_they_are_or_told() -> None:
    def late() -> None:
        raise TimeoutError("of the call's own")

    with closing(CatalogCalls("lake")) as calls:
        with pytest.raises(TimeoutError, match="of the call's own"):
            calls(late)
        with pytest.raises(StoreUnreachableError, match=r"lake: the catalog failed: TimeoutError"):
            calls.translated(late)
        with pytest.raises(ValueError, match="invalid literal"):
            calls.translated(lambda: int("x"))


@contextmanager
def rest_catalog(status: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A catalog server that answers everything with a status; pyiceberg knows it as `lake`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        name_catalog(server.server_port, monkeypatch)
        yield
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def name_catalog(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it was read at the import


@pytest.mark.parametrize(("status", "name"), [(401, "Unauthorized"), (503, "ServiceUnavailable")])
def test_a_catalog_that_refuses_is_one_line(
    status: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        rest_catalog(status, monkeypatch),
        pytest.raises(StoreUnreachableError, match=rf"lake\.ns\.orders: the catalog .*{name}"),
    ):
        open_iceberg("lake.ns.orders", "orders", file_schema(None))


def test_a_catalog_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    name_catalog(port, monkeypatch)
    with pytest.raises(StoreUnreachableError, match=r"lake\.ns\.orders: the catalog failed"):
        open_iceberg("lake.ns.orders", "orders", file_schema(None))


def test_a_catalog_that_nobody_described_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="pyiceberg does not know the catalog nobody"):
        open_iceberg("nobody.ns.orders", "orders", file_schema(None))
