"""`tidemark rsm check`: does a storage plugin keep its promises here, and how fast is its store?"""

import json
import signal
import sys
from pathlib import Path

import click

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract import AllPromises, expect
from rsm_plugins.contract.run import Candidate, Outcome, Verdict, ask_all, clean_up, promise_names
from tidemark.remote.options import ToolCommand
from tidemark.remote.progress import progress
from tidemark.remote.segments_view import make_console
from tidemark.rsm import check_view
from tidemark.rsm.plugin import make_first_plugin, make_plugin, settings_of
from tidemark.rsm.speed import Speed, measure

_BROKEN = 2


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

    Everything is done under a scratch topic of a random id, and deleted at the end. Ends with 0
    when all promises are kept, 2 when one is broken, 1 when nothing could be asked.
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
    janitor = make_first_plugin(plugin, settings)
    left: list[str] = []
    try:
        outcomes = _ask(candidate, janitor, left)
        speed, reason = (None, "") if no_speed else _measure(candidate, janitor, left)
    finally:
        for one in left:
            click.echo(f"tidemark: left behind: {one}", err=True)
        janitor.close()
    report = check_view.Report(plugin, outcomes, speed, reason, left)
    if for_programs:
        click.echo(json.dumps(check_view.as_json(report), indent=1))
    else:
        make_console().print(check_view.as_text(report))
    sys.exit(_BROKEN if report.count(Verdict.BROKEN) else 0)


def _ask(candidate: Candidate, janitor: RemoteStorageManager, left: list[str]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with progress() as bars:
        advance = bars.phase("asking promises")
        total = len(promise_names())
        advance(0, total)
        for outcome in ask_all(candidate, janitor, left):
            outcomes.append(outcome)
            advance(len(outcomes), total)
    return outcomes


def _measure(
    candidate: Candidate, janitor: RemoteStorageManager, left: list[str]
) -> tuple[Speed | None, str]:
    promises = candidate.new_promises()
    try:
        with progress() as bars:
            bars.phase("measuring")(0, None)
            return measure(janitor, promises), ""
    except Exception as e:  # noqa: BLE001 - the promises were asked; what failed here is told
        return None, expect.described(e)
    finally:
        left += clean_up(promises, janitor)
