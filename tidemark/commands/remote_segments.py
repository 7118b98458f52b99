"""`tidemark remote segments`: where a topic's offsets lie."""

import json
from pathlib import Path

import click

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicIdPartition
from pipeline.cluster.cluster import Topic, epoch_chain, is_tiered, offsets
from tidemark.remote import segments_view
from tidemark.remote.metadata_reader import MetadataReader
from tidemark.remote.options import ToolCommand, cluster_options
from tidemark.remote.partition_report import PartitionReport, report
from tidemark.remote.progress import progress
from tidemark.remote.session import Session, connected


@click.command("segments", cls=ToolCommand)
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
@click.option("--all", "everything", is_flag=True, help="Leave no segment and no problem out.")
@click.option("--json", "for_programs", is_flag=True, help="Print JSON.")
@cluster_options
def command(
    topic: str,
    partition: int | None,
    everything: bool,
    for_programs: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Show where a topic's offsets lie: tiers, segments, problems."""
    with connected(bootstrap, command_config) as session:
        found = _read(session, session.cluster.topic(topic), partition)
        now_ms = session.clock.wall_ms()
    if for_programs:
        click.echo(json.dumps(segments_view.as_json(found, now_ms=now_ms), indent=1))
        return
    console = segments_view.make_console()
    ink = segments_view.ink_for(console)
    text = segments_view.as_text(
        found, now_ms=now_ms, width=console.width, ink=ink, everything=everything
    )
    console.print(text)


def _read(session: Session, topic: Topic, partition: int | None) -> segments_view.TopicReport:
    numbers = sorted(topic.leaders)
    if partition is not None:
        if partition not in topic.leaders:
            raise ClusterError(
                f"--partition={partition}: topic {topic.name} has {len(numbers)} partitions"
            )
        numbers = [partition]
    tiered = is_tiered(session.client, topic.name)
    with progress() as bars, session.metadata(topic) as metadata:
        metadata.read_to_end(bars.phase("reading metadata"))
        partitions = [_partition(session, topic, number, metadata) for number in numbers]
    return segments_view.TopicReport(
        topic.name, topic.topic_id, session.cluster.cluster_id, tiered, partitions
    )


def _partition(
    session: Session, topic: Topic, number: int, metadata: MetadataReader
) -> PartitionReport:
    client, cluster = session.client, session.cluster
    place = TopicIdPartition(topic.topic_id, number, topic.name)
    segments = [entry.metadata for entry in metadata.entries(place)]
    epochs = {entry.epoch for one in segments for entry in one.leader_epochs}
    return report(
        number,
        # the log end is asked after the metadata: no segment may end beyond it
        offsets(client, cluster, topic, number),
        segments,
        epoch_chain(client, cluster, topic, number, epochs),
    )
