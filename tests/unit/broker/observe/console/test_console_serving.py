"""Who gets the page, under which name, by which method, and with which headers."""

import asyncio
import json
import re
from importlib.resources import files

import jsonschema
import pytest

from broker.observe.console.serving import STATE, Access, Console, StateMaker, node_facts
from broker.observe.health import Health, routes
from broker.observe.http import HttpAnswer, HttpRequest, HttpServer, pages
from broker.observe.metrics import MetricsPage
from runtime.metrics import Registry
from tests.support.console.source import STATE_SCHEMA, ListedSource, log_of
from tests.support.sim.clock import ManualClock

STATIC = files("broker.observe.console") / "static"
PATHS = ("/", "/console/page.js", "/console/page.css", "/console/icon.svg", STATE)
LOOPBACK = Access.of("127.0.0.1", None, ())


class Served:
    """A page, its state, and the pages of machines beside it."""

    def __init__(self, access: Access = LOOPBACK) -> None:
        self.clock, self.health = ManualClock(), Health(1)
        self.states = StateMaker(node_facts(self.health, lambda: "1.2", self.clock), self.clock)
        self.source = self.states.source = ListedSource([log_of("t")])
        others = pages(routes(self.health, MetricsPage(Registry())))
        self.respond = Console(access, self.states, others).respond

    async def ask(
        self, path: str, host: str | None = "localhost:9464", method: str = "GET"
    ) -> HttpAnswer:
        headers = {} if host is None else {"host": host}
        answer = self.respond(HttpRequest(method, path, headers))
        return answer if isinstance(answer, HttpAnswer) else await answer


@pytest.mark.parametrize("path", PATHS)
async def test_all_of_the_page_comes_with_the_headers_that_bind_a_browser(path: str) -> None:
    answer = await Served().ask(path)
    headers = dict(answer.headers)
    policy = dict(
        one.strip().split(" ", 1) for one in headers["Content-Security-Policy"].split(";")
    )
    assert (answer.status, bool(answer.body)) == (200, True)
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == "'none'"
    assert policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"


async def test_headers_are_sent() -> None:
    server = HttpServer("127.0.0.1", 0, Served().respond)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    finally:
        await server.stop()
    assert b"\r\nContent-Security-Policy: default-src 'none';" in head
    assert body == (STATIC / "page.html").read_bytes()


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "get"])
@pytest.mark.parametrize("path", ["/", STATE])
async def test_only_get_is_served(path: str, method: str) -> None:
    answer = await Served().ask(path, method=method)
    assert (answer.status, dict(answer.headers)) == (405, {"Allow": "GET"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:80",
        "localhost.",
        "127.0.0.1:9464",
        "127.3.2.1",
        "[::1]:9464",
        "[::1]",
        "[0:0:0:0:0:0:0:1]:9464",
        "[::1%25lo]:9464",
        "[::FFFF:127.0.0.1]",
        "127.0.0.1.",
    ],
)
async def test_names_of_loopback_are_served(host: str) -> None:
    assert (await Served().ask(STATE, host)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:9464",
        "evil.example:127.0.0.1",
        "192.168.1.7",
        "0.0.0.0",
        "[::]",
        "[::1",
        "[::1]evil",
        "[::1].evil.example",
        "[::1].evil.example:9464",
        "[::1]:evil.example",
        "[::2]",
        "[::ffff:192.168.1.7]",
        "[localhost]",
        "[127.0.0.1]",
        "::1",
        "127.0.0.1%25lo",
        "127.0.0.1.evil.example",
        "localhost..",
        "localhost:port",
        "localhost, evil.example",
        "user@localhost",
        "2130706433",
        "0x7f.1",
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_no_other_name_is_served(path: str, host: str | None) -> None:
    answer = await Served().ask(path, host)
    assert answer.status == 421
    assert b"tidemark.console.hosts" in answer.body


async def test_names_that_are_set_and_that_of_the_listener_are_served() -> None:
    names = ("Console.Example.", "10.0.0.7:9464", "FD00:0:0::7", "[fd00::8]:80", "fe80::9%eth0")
    served = Served(Access.of("h1.example", True, names))
    good = ("h1.example:9464", "console.example", "CONSOLE.example:80", "10.0.0.7", "[fd00::7]:1")
    for host in (*good, "[FD00::8]", "[FD00:0::0:7]", "[fe80::9]:9464", "[fe80::9%25eth0]"):
        assert (await served.ask("/", host)).status == 200, host
    for host in ("h2.example", "[fd00::9]", "fd00::7", "[10.0.0.7]", "10.0.0.70"):
        assert (await served.ask("/", host)).status == 421, host


@pytest.mark.parametrize("listener", ["FD00:0:0::1", "fd00::1", "fd00::1%eth0"])
async def test_a_listener_on_an_ipv6_address_is_named_in_any_spelling(listener: str) -> None:
    served = Served(Access.of(listener, True, ()))
    for host in ("[fd00::1]", "[FD00:0:0:0:0:0:0:1]:9464", "localhost"):
        assert (await served.ask("/", host)).status == 200, host
    assert (await served.ask("/", "[fd00::2]")).status == 421


@pytest.mark.parametrize("listener", ["", "0.0.0.0", "::", "0:0::0"])
async def test_a_listener_on_every_address_has_no_name_of_its_own(listener: str) -> None:
    served = Served(Access.of(listener, True, ()))
    for host in ("0.0.0.0", "[::]:9464", "", ":9464"):
        assert (await served.ask("/", host)).status == 421, host
    assert (await served.ask("/", "127.0.0.1")).status == 200


@pytest.mark.parametrize(
    ("listener", "enable", "is_open"),
    [
        ("127.0.0.1", None, True),
        ("localhost", None, True),
        ("::1", None, True),
        ("0:0:0:0:0:0:0:1", None, True),
        ("LOCALHOST", None, True),
        ("127.0.0.1", False, False),
        ("0.0.0.0", None, False),
        ("", None, False),
        ("h1", None, False),
        ("h1", True, True),
        ("h1", False, False),
    ],
)
async def test_beyond_loopback_it_is_served_only_where_that_is_said(
    listener: str, enable: bool | None, is_open: bool
) -> None:
    served = Served(Access.of(listener, enable, ()))
    for path in PATHS:
        answer = await served.ask(path)
        assert answer.status == (200 if is_open else 404)
        assert is_open or b"tidemark.console.enable" in answer.body


@pytest.mark.parametrize("host", [None, "evil.example", "10.0.0.3:9464"])
async def test_pages_for_machines_are_served_under_any_name(host: str | None) -> None:
    for access in (LOOPBACK, Access.of("h1", None, ())):
        served = Served(access)
        assert (await served.ask("/health", host)).status == 200
        assert (await served.ask("/metrics", host)).status == 200
        assert (await served.ask("/health", host, method="HEAD")).status == 200
        assert (await served.ask("/nosuch", host)).status == 404


def test_nothing_inline_and_nothing_from_elsewhere_stands_in_the_page() -> None:
    page = (STATIC / "page.html").read_text()
    assert not re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", page)
    loaded = re.findall(r"(?:src|href)=\"([^\"]*)\"", page)
    assert set(PATHS) - {"/", STATE} == {one for one in loaded if one.startswith("/console/")}
    assert all(one.startswith("/") and not one.startswith("//") for one in loaded)
    script = (STATIC / "page.js").read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "://"):
        assert word not in script.replace('"http://www.w3.org/2000/svg"', ""), word
    assert "url(" not in (STATIC / "page.css").read_text().replace("url(#hatch)", "")


def test_the_legend_has_each_mark_of_a_drawing() -> None:
    page = (STATIC / "page.html").read_text()
    script = (STATIC / "page.js").read_text()
    drawn = {*re.findall(r'bar\(.*"(\w+)"\);', script), *re.findall(r'class: "(group)"', script)}
    assert drawn == {"remote", "local", "group"}
    assert set(re.findall(r'class="key".*class="(\w+)"/>', page)) == drawn
    assert '"■ unhealthy"' in script
    assert ">■ unhealthy<" in page


def test_all_text_passes_the_function_that_escapes_bidi_characters() -> None:
    script = (STATIC / "page.js").read_text()
    assert set(re.findall(r"textContent = (.*);", script)) == {"visible(String(text))", "shown"}
    assert "const shown = visible(text);" in script
    assert r"\u2028-\u202e\u2066-\u2069" in script


async def test_the_state_has_its_shape() -> None:
    served = Served()
    served.health.checks["logs"] = lambda: ["</script>" * 500]
    answer = await served.ask(STATE)
    value = json.loads(answer.body)
    jsonschema.validate(value, STATE_SCHEMA)
    assert answer.content_type == "application/json"
    assert (value["node_id"], value["version"], value["health"]["status"]) == (1, "1.2", "red")
    assert value["partitions"][0]["topic"] == "t"


async def test_a_state_serves_all_who_ask_within_a_second() -> None:
    served = Served()
    first = await served.ask(STATE)
    served.source.all_partitions.append(log_of("u"))
    served.clock.advance(999)
    assert (await served.ask(STATE)).body == first.body
    served.clock.advance(1)
    assert len(json.loads((await served.ask(STATE)).body)["partitions"]) == 2


async def test_those_who_ask_while_it_is_made_share_it_and_may_leave() -> None:
    served = Served()
    served.source.all_partitions += [log_of("u", n) for n in range(1_000)]
    first, second, third = (asyncio.create_task(served.ask(STATE)) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).body is (await third).body
    assert first.cancelled()


async def test_a_state_that_cannot_be_made_is_tried_again() -> None:
    served = Served()
    served.source.of_tier = 7  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await served.ask(STATE)
    served.source.of_tier = None
    assert (await served.ask(STATE)).status == 200
