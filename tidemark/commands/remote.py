"""`tidemark remote`: look at the remote tier of a cluster, and the remedies of its losses."""

from types import MappingProxyType

import click

from tidemark.cli import LazyGroup

_COMMANDS = MappingProxyType(
    {
        "adopt": "Continue with a partition whose log end or epoch chain is lost.",
        "audit": "Compare what the metadata says with what the store holds.",
        "claim": "Let a broker write to the store again that runs on an older copy of its files.",
        "forget": "Give up the remote data of a topic id that the cluster does not know.",
        "replicate-metadata": "Give the topic of the remote metadata more replicas.",
        "restore-partition": "Begin a partition again of which only the store has records.",
        "segments": "Show where a topic's offsets lie: tiers, segments, problems.",
    }
)


@click.command("remote", cls=LazyGroup, module="tidemark.commands.remote_{}", names=_COMMANDS)
def command() -> None:
    """Look at the remote tier of a cluster from outside; give a broker its claim back."""
