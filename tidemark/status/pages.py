"""Reads the pages of a node, within a deadline: its health, its version, how far its tier is."""

import http.client
import json
import re
from collections.abc import Callable
from typing import Any, Final

from broker.config.key import ConfigError
from broker.config.listeners import parse_host_port
from kafka_client.transport import Address
from tidemark.status.facts import PAGE_KEY, CopyLag, Page

_EVERYWHERE: Final = frozenset(("", "0.0.0.0", "::"))
_BYTES_MAX: Final = 1 << 20
_METRICS_BYTES_MAX: Final = 64 << 20
_VERSION: Final = re.compile(r'^tidemark_build_info\{[^}]*version="([^"]*)"', re.MULTILINE)
_COPY_LAG: Final = re.compile(
    r"^kafka_server_BrokerTopicMetrics_RemoteCopyLag(Bytes|Segments)"
    r'\{[^}]*topic="([^"]*)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


def page_address(listener: str, node: Address) -> Address | None:
    """Where a page is, by what `tidemark.http.listener` says; None: the node has none.

    Args:
        listener: the setting.
        node: where the node itself is reached: the host of a page that listens everywhere.
    """
    if not listener:
        return None
    try:
        host, port = parse_host_port(PAGE_KEY, listener, "must be host:port")
    except ConfigError:
        return None
    return (node[0] if host in _EVERYWHERE else host, port)


def read_page(address: Address, node_id: int, left_s: Callable[[], float]) -> Page:
    """Ask a page for the health of its node.

    A page that listens on loopback may be another machine's, so that its node has to be this one.

    Args:
        address: of the page.
        node_id: whose page it should be.
        left_s: how long it may still take.
    """
    shown = f"http://{address[0]}:{address[1]}/health"
    try:
        report = json.loads(_get(address, "/health", left_s, _BYTES_MAX))
        if report["node_id"] != node_id:
            return Page("", reasons=(f"{shown} is the page of node {report['node_id']}",))
        reasons = tuple(str(one) for one in report["reasons"])
        remedies = {str(one): str(text) for one, text in report.get("remedies", {}).items()}
        return Page(str(report["status"]), str(report["stage"]), reasons, remedies)
    except (OSError, http.client.HTTPException) as error:
        return Page("", reasons=(f"{shown} does not answer: {error!r}",))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Page("", reasons=(f"{shown} is no page of health: {error!r}",))


def read_metrics(address: Address, left_s: Callable[[], float]) -> tuple[str, dict[str, CopyLag]]:
    """Ask a page which version its node is, and how much it has to copy, by tiered topic.

    Args:
        address: of the page, which has said whose it is.
        left_s: how long it may still take; without an answer until then nothing is known.
    """
    try:
        text = _get(address, "/metrics", left_s, _METRICS_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return "", {}
    sums: dict[str, list[int]] = {}
    for what, topic, count in _COPY_LAG.findall(text):
        sums.setdefault(topic, [0, 0])[what == "Bytes"] += int(float(count))
    version = _VERSION.search(text)
    return version[1] if version else "", {one: CopyLag(*counts) for one, counts in sums.items()}


def _get(address: Address, path: str, left_s: Callable[[], float], bytes_max: int) -> bytes:
    """The body.

    Raises:
        OSError, HTTPException: there is none in time.
    """
    connection = http.client.HTTPConnection(*address, timeout=_some(left_s))
    try:
        connection.request("GET", path)
        answer: Any = connection.getresponse()
        body = b""
        while len(body) < bytes_max:
            _some(left_s)  # a page that sends a byte now and then does not hold it up
            more = answer.read1(bytes_max)
            if not more:
                return body
            body += more
        raise http.client.HTTPException(f"it is longer than {bytes_max} bytes")
    finally:
        connection.close()


def _some(left_s: Callable[[], float]) -> float:
    left = left_s()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
