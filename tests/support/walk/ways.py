"""The commands of a walk's ways out: asked without an answer first, then ordered, sometimes undone.

Without `--yes` a command asks, nobody answers, and neither files nor store may change.
"""

import re
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition

from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.tiered_topics import admin_of
from tests.support.brokers.traffic import Lane

Contents = dict[str, bytes]


class Ways:
    """Orders what a person would order.

    Attributes:
        walked: how often each way out was taken to its end.
    """

    def __init__(self, broker: DirectoriesBroker) -> None:
        self._broker = broker
        self._undo_files = 0
        self.walked: Counter[str] = Counter()

    # ------------------------------------------------------------------ while the broker is down

    def accept_directory(self, directory_id: str) -> None:
        """A log directory of another time is used as it is."""
        self._order(("directories", "accept", *self._config), ("--", directory_id))
        self.walked["directories accept"] += 1

    def accept_log(self, lane: Lane) -> None:
        """A log that lost records is taken as it is."""
        self._run("log", "accept", lane[0], str(lane[1]), "--yes", *self._config)
        self.walked["log accept"] += 1

    def claim(self, dice: Random) -> None:
        """The store's claim is taken for these files."""
        before = self._contents()
        said = self._order(("remote", "claim", *self._config))
        if dice.random() < 0.3:
            undo = re.search(r"to undo it before that: mv (\S+) (\S+)", said)
            assert undo, said
            Path(undo[1]).rename(undo[2])
            assert self._contents() == before, "the undo puts back what was there"
            self.walked["claim undone"] += 1
            self._order(("remote", "claim", *self._config))
        self.walked["claim"] += 1

    def adopt(self, lane: Lane, dice: Random, *options: str) -> str:
        """A lost log end, or a lost chain, is adopted; what the command said."""
        command = ("remote", "adopt", lane[0], str(lane[1]), *self._config)
        before, undo = self._contents(), self._undo_file()
        said = self._order((*command, *options, "--undo-file", str(undo)), undo=undo)
        if dice.random() < 0.3:
            self._run(*command, "--take-back", str(undo))
            undo.unlink()
            changed = {name for name, _ in before.items() ^ self._contents().items()}
            # The checksums remember each version of a file.
            assert all(name.endswith("/tidemark-checksums") for name in changed), changed
            self.walked["adopt taken back"] += 1
            self._order((*command, *options, "--undo-file", str(undo)), undo=undo)
        undo.unlink()
        self.walked["adopt a chain" if "--segment" in "".join(options) else "adopt an end"] += 1
        return said

    # ------------------------------------------------------------------ while it runs

    def forget(self, topic_id: str, dice: Random) -> None:
        """What is remote of an unknown topic id is given up."""
        undo = self._undo_file()
        command = ("remote", "forget", "--bootstrap-server", self._broker.bootstrap)
        options = (*command, "--undo-file", str(undo))
        self._order(options, ("--", topic_id), undo=undo, of_topic=topic_id)
        if dice.random() < 0.3:
            undone = self._broker.command(*command, "--take-back", "--", topic_id)
            undo.unlink()
            if undone.returncode == 0:
                self.walked["forget taken back"] += 1
                undone = self._broker.command(*options, "--yes", "--", topic_id)
            if undone.returncode:  # it came too late, for all of it
                assert "nothing is left of topic id" in undone.stderr, undone.stderr
        undo.unlink(missing_ok=True)
        self.walked["forget"] += 1

    def delete_records(self, lane: Lane, offset: int) -> None:
        """What lies below an offset is given up."""
        wanted = TopicPartition(*lane, offset)
        admin = admin_of(self._broker)  # it must outlive its request
        answered = admin.delete_records([wanted])[wanted].result(30)
        assert answered.low_watermark >= offset, (lane, offset, answered.low_watermark)

    def delete_orphans(self) -> None:
        """Objects that nothing names are removed from the store."""
        done = self._broker.command("remote", "audit", "--delete-orphans", "--yes", *self._tool)
        # Of a backup that knows no segment yet it takes the store for another cluster's.
        is_refused = "the store holds nothing that the metadata calls finished" in done.stdout
        assert done.returncode in (0, 2) or is_refused, done.stdout + done.stderr
        self.walked["audit --delete-orphans"] += 1

    # ------------------------------------------------------------------ commands

    @property
    def _config(self) -> tuple[str, str]:
        return "--config", str(self._broker.config_file)

    @property
    def _tool(self) -> tuple[str, ...]:
        return "--bootstrap-server", self._broker.bootstrap, *self._config

    def _undo_file(self) -> Path:
        self._undo_files += 1
        return self._broker.directory.parent / f"undo-{self._undo_files}.json"

    def _order(
        self,
        options: tuple[str, ...],
        operands: tuple[str, ...] = (),
        *,
        undo: Path | None = None,
        of_topic: str = "",
    ) -> str:
        """First without an answer to its question, then with `--yes`; what it said."""
        before = self._contents(of_topic)
        asked = self._broker.command(*options, *operands)
        assert asked.returncode == 1, (options, asked.stdout, asked.stderr)
        assert "[y/N]" in asked.stdout, (options, asked.stdout, asked.stderr)
        after = self._contents(of_topic)
        changed = {name for name, _ in before.items() ^ after.items()}
        assert not changed, f"{options[:2]} changed {sorted(changed)[:5]} without an answer"
        assert undo is None or not undo.exists()
        said = self._run(*options, "--yes", *operands)
        assert undo is None or undo.exists()
        return said

    def _run(self, *arguments: str) -> str:
        done = self._broker.command(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def _contents(self, of_topic: str = "") -> Contents:
        """Every file; while the broker runs only what is in the store of one topic id."""
        root, store = self._broker.directory, self._broker.remote_directory
        places = [store, *self._broker.log_directories]
        if of_topic:
            places = list(store.glob(f"*-{of_topic}"))
        return {
            str(path.relative_to(root)): sha256(path.read_bytes()).digest()
            for place in places
            for path in place.rglob("*")
            if path.is_file()
        }
