"""`tidemark remote audit`: what the metadata says against what the store holds."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from runtime.executors import Pool, ThreadPool
from tidemark.remote import audit_view
from tidemark.remote.audit import Finding
from tidemark.remote.audit_brokers import BrokerAudit, broker_audits, leader_of
from tidemark.remote.audit_run import Audit, AuditScope, Totals
from tidemark.remote.options import ToolCommand, WrongOptionError, cluster_options
from tidemark.remote.orphans import Deletion, delete_orphans
from tidemark.remote.progress import progress
from tidemark.remote.segments_view import make_console
from tidemark.remote.session import connected
from tidemark.remote.storage import opened, storage_settings
from tidemark.remote.store_view import StoreView
from tidemark.remote.trust import Trust

CLEAN, FAILED, FINDINGS = 0, 1, 2
_THREADS = 8


@click.command("audit", cls=ToolCommand)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--config", "-c", "config_file", metavar="FILE", type=click.Path(path_type=Path),
    help="A broker's server.properties: the storage plugin and its settings are taken from it.",
)  # fmt: skip
@click.option("--storage-class", metavar="MODULE:CLASS", help="The plugin, instead of the file's.")
@click.option(
    "--storage-config", multiple=True, metavar="K=V",
    help="A setting of the plugin, without rsm.config.; repeatable.",
)  # fmt: skip
@click.option(
    "--copy-max-ms", type=click.IntRange(min=1), metavar="MS",
    help="The cluster's tidemark.remote.copy.max.ms, instead of the file's.",
)  # fmt: skip
@click.option("--deep", is_flag=True, help="Read everything back and check every batch.")
@click.option(
    "--delete-orphans", "deletes", is_flag=True,
    help="Delete orphans, and nothing else; needs --yes.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="The orphans were looked at, and may be deleted.")
@click.option("--all", "everything", is_flag=True, help="Leave no finding out.")
@click.option("--json", "for_programs", is_flag=True, help="Print JSON.")
@cluster_options
def command(
    topics: tuple[str, ...],
    config_file: Path | None,
    storage_class: str | None,
    storage_config: tuple[str, ...],
    copy_max_ms: int | None,
    deep: bool,
    deletes: bool,
    yes: bool,
    everything: bool,
    for_programs: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Compare what the metadata says with what the store holds.

    Exit code 0: nothing found. 1: it could not be done, wholly or in part. 2: something was found
    and is still there.
    """
    if deletes and not yes:
        raise WrongOptionError(
            "--delete-orphans needs --yes: look at the orphans that the audit shows without it"
        )
    found = storage_settings(config_file, storage_class, storage_config, copy_max_ms)
    console = make_console()
    with (
        connected(bootstrap, command_config) as session,
        opened(found, session.cluster.cluster_id) as storage,
        session.metadata() as metadata,
        StoreView() as store,
    ):
        began_ms = session.clock.monotonic_ms()
        leader = partial(leader_of, session.cluster)
        wanted = AuditScope(frozenset(topics), deep, found.copy_max_ms, leader)
        with progress() as bars, pool() as threads:
            audit = Audit(metadata, storage, store, wanted, session.clock)
            audit.observe(threads, bars)
        took_ms = session.clock.monotonic_ms() - began_ms

        def tell(one: Finding) -> None:
            if not for_programs:  # the JSON has told all of them by now
                audit_view.print_deleting(console, one)

        def brokers() -> Sequence[BrokerAudit]:
            return broker_audits(session.cluster, audit.totals.led, storage)

        def delete() -> Deletion | None:
            if not deletes:
                return None
            permission = Trust(session, storage, found.config)
            return delete_orphans(storage, metadata, audit, found.copy_max_ms, permission, tell)

        if for_programs:
            echo = partial(click.echo, nl=False)
            deletion = audit_view.print_json(
                echo, audit.findings(), audit.totals, deep=deep, brokers=brokers, delete=delete
            )
        else:
            audit_view.print_findings(console, audit.findings(), everything=everything)
            audit_view.print_brokers(console, brokers())
            audit_view.print_totals(console, audit.totals, deep=deep, took_ms=took_ms)
            deletion = delete()
            if deletion is not None:
                audit_view.print_deletion(console, deletion)
    sys.exit(exit_code(audit.totals, deletion or Deletion()))


def exit_code(totals: Totals, deletion: Deletion) -> int:
    """The exit code of the command."""
    if totals.unchecked_count or deletion.refused is not None:
        return FAILED
    return FINDINGS if totals.findings_count > len(deletion.deleted) else CLEAN


@contextmanager
def pool() -> Iterator[Pool]:
    """Threads that read segments back."""
    threads = ThreadPool("audit", _THREADS)
    try:
        yield threads
    finally:
        threads.shutdown(wait=False)
