"""A page on a loop in a thread, of a node that is given as plain values."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from broker.observe.console.facts import Source
from broker.observe.console.history import NAMES, SAMPLES
from broker.observe.console.serving import Access, Console, StateMaker, node_facts
from broker.observe.health import Health
from broker.observe.http import HttpServer, pages
from runtime.clock import SystemClock


@contextmanager
def served_page(source: Source, health: Health) -> Iterator[str]:
    """Serve it until the end of the block; returns its address."""
    clock = SystemClock()
    states = StateMaker(node_facts(health, lambda: "1.2", clock), clock)
    states.source = source
    for number in range(SAMPLES):
        at_ms = clock.monotonic_ms() - (SAMPLES - number) * 5_000
        states.history.add(at_ms, dict.fromkeys(NAMES, number * number * 1000))
    server = HttpServer("127.0.0.1", 0, Console(Access(is_open=True), states, pages({})).respond)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
