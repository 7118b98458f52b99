"""`tidemark rsm check`: does a storage plugin keep its promises here, and how fast is its store?"""

import json
import logging
import os
import re
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from rsm_plugins import retries
from rsm_plugins import settings as plugin_settings
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract import AllPromises
from rsm_plugins.contract.run import (
    Candidate,
    Outcome,
    Verdict,
    ask_all,
    clean_up,
    probe,
    promise_names,
    sentence_of,
)
from runtime.override import override
from runtime.raised import described
from tidemark.remote.options import ToolCommand
from tidemark.remote.progress import progress
from tidemark.remote.segments_view import make_console
from tidemark.remote.storage import make_first_plugin, make_plugin, settings_of
from tidemark.rsm import check_view
from tidemark.rsm.speed import measure

_BROKEN = 2
_INTERRUPTED = 1
_NOT_ASKED = 1
_ONE_REASON_MAX = 5
"""So many promises broken for one reason, and the others are not asked."""
_OF_ONE_SEGMENT = re.compile(r"\S*/\S*")
"""Keys and addresses, which differ from promise to promise."""


class _Once(logging.Filter):
    """Lets each message through once: every promise configures a plugin of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, None] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self.said
        self.said[text] = None
        return is_new


@click.command("check", cls=ToolCommand)
@click.argument("plugin", metavar="PACKAGE.MODULE:CLASS")
@click.option("--config", "config", multiple=True, metavar="K=V", help="A setting; repeatable.")
@click.option(
    "--config-file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Settings in a file, or the rsm.config. entries of a server.properties.",
)  # fmt: skip
@click.option(
    "--unreachable", multiple=True, metavar="K=V",
    help="A setting that leads to no store (endpoint.url=http://127.0.0.1:9); repeatable.",
)  # fmt: skip
@click.option(
    "--refusing", multiple=True, metavar="K=V",
    help="A setting that leads to a store that refuses to write (read-only, full); repeatable.",
)  # fmt: skip
@click.option(
    "--large-segment-bytes", default=AllPromises.large_segment_bytes, show_default=True,
    type=click.IntRange(1 << 20, 1 << 30), help="Above the plugin's part size.",
)  # fmt: skip
@click.option("--no-speed", is_flag=True, help="Do not measure.")
@click.option("--json", "for_programs", is_flag=True, help="Print JSON.")
def command(
    plugin: str,
    config: tuple[str, ...],
    config_file: Path | None,
    unreachable: tuple[str, ...],
    refusing: tuple[str, ...],
    large_segment_bytes: int,
    no_speed: bool,
    for_programs: bool,
) -> None:
    """Ask a storage plugin every promise, on a live store, and measure its speed.

    Everything is done under a scratch topic of a random id, and deleted at the end. Each promise
    gets a line within a minute; one that hangs says in which call. Where not even a small segment
    can be copied, read and deleted, or five promises break for one reason, no more are asked. Ends
    with 0 when all promises are kept, 2 when one is broken, 1 when nothing could be asked or on
    Ctrl-C, which prints what was found so far.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up, as Ctrl-C does
    settings = settings_of(config_file, config)
    nowhere = settings | settings_of(None, unreachable)
    read_only = settings | settings_of(None, refusing)
    candidate = Candidate(
        make=lambda: make_plugin(plugin, settings),
        make_unreachable=(lambda: make_plugin(plugin, nowhere)) if unreachable else None,
        make_refusing=(lambda: make_plugin(plugin, read_only)) if refusing else None,
        settings=settings,
        large_segment_bytes=large_segment_bytes,
    )
    once = _Once()
    plugin_settings.log.addFilter(once)
    janitor = make_first_plugin(plugin, settings)
    promises = candidate.new_promises()
    retries.log.disabled = True  # the message says it
    try:
        why = probe(promises, janitor)
    except KeyboardInterrupt:
        why = "ended while a small segment was tried"
        promises.stopped = True
        clean_up(promises, janitor)
    retries.log.disabled = False
    if why:
        click.echo(f"tidemark: {plugin}: no promise was asked: {why}", err=True)
        _end(_NOT_ASKED)
    report = check_view.Report(plugin, [], None, "", [])
    try:
        # Lines for people go where the report goes, so that a file holds them in their order.
        report = _ask(candidate, janitor, report, to_stderr=for_programs)
        hung = any(outcome.hung for outcome in report.outcomes)
        if hung and not no_speed:
            report = replace(report, speed_reason="a call did not return")
        elif not no_speed and not report.interrupted_at and not report.stopped_for:
            report = _measure(candidate, janitor, report)
    finally:
        report = replace(report, warnings=list(once.said))
        for one in report.left:
            click.echo(f"tidemark: left behind: {one}", err=True)
        if for_programs:
            click.echo(json.dumps(check_view.as_json(report), indent=1))
        else:
            make_console().print(check_view.summary(report))
    if report.interrupted_at:
        _end(_INTERRUPTED)
    status = _BROKEN if report.count(Verdict.BROKEN) else 0
    if any(outcome.hung for outcome in report.outcomes):
        _end(status)
    janitor.close()
    sys.exit(status)


def _ask(
    candidate: Candidate,
    janitor: RemoteStorageManager,
    report: check_view.Report,
    *,
    to_stderr: bool,
) -> check_view.Report:
    """Ask each promise, and print a line for it as soon as there is a verdict."""
    outcomes: list[Outcome] = []
    left: list[str] = []
    reasons: Counter[str] = Counter()
    interrupted_at = stopped_for = ""
    try:
        for outcome in ask_all(candidate, janitor, left):
            outcomes.append(outcome)
            click.echo(check_view.line_of(outcome), err=to_stderr)
            if outcome.verdict is Verdict.BROKEN:
                reason = _OF_ONE_SEGMENT.sub("...", outcome.reason)
                reasons[reason] += 1
                if reasons[reason] == _ONE_REASON_MAX:
                    count = len(promise_names()) - len(outcomes)
                    stopped_for = (
                        f"{_ONE_REASON_MAX} promises broke for one reason, {count} more were not"
                        f" asked: {outcome.reason}"
                    )
                    break
    except KeyboardInterrupt:
        interrupted_at = sentence_of(promise_names()[len(outcomes)])
    if stopped_for:
        outcomes += [
            Outcome(
                name, sentence_of(name), Verdict.NOT_ASKED, "five were broken for one reason", 0
            )
            for name in promise_names()[len(outcomes) :]
        ]
    return replace(
        report,
        outcomes=outcomes,
        left=left,
        interrupted_at=interrupted_at,
        stopped_for=stopped_for,
    )


def _measure(
    candidate: Candidate, janitor: RemoteStorageManager, report: check_view.Report
) -> check_view.Report:
    promises = candidate.new_promises()
    try:
        with progress() as bars:
            bars.phase("measuring")(0, None)
            report = replace(report, speed=measure(janitor, promises))
    except KeyboardInterrupt:
        report = replace(report, interrupted_at="how fast the store is")
    except Exception as e:  # noqa: BLE001 - the promises were asked; what failed here is told
        report = replace(report, speed_reason=described(e))
    return replace(report, left=[*report.left, *clean_up(promises, janitor)])


def _end(status: int) -> NoReturn:
    """End without waiting for calls that hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
