"""Every file of the metadata directory, every bit of it flipped and cut at every length.

A start has the very same metadata, or is refused and names the file. Only the last batch after a
kill, of which nobody was told, may be taken for a torn tail.

Places are drawn by a seed, which is printed; TIDEMARK_ALL_BITS=1 takes them all.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.node import MetadataNode
from runtime.disk import Disk, OpenFile
from tests.support.damage.places import Damaged, drawn, quick_directory
from tests.support.worlds.metadata_home import Home, topics

SMALL = MetadataLogConfig(segment_bytes=700, max_retention_bytes=-1)
LAST = "last"
SHARE = 48
INDEX_BYTES = 96  # of the megabytes of zeros that an open index has room for

pytestmark = pytest.mark.timeout(3600)


class QuickDisk(Disk):
    def fsync(self, file: OpenFile) -> None:
        pass

    def fsync_path(self, path: Path) -> None:
        pass


@dataclass
class Base:
    """A metadata directory, and what was acknowledged of it.

    Attributes:
        torn: the file whose last batch nobody was told of, and where that begins.
    """

    home: Home
    files: dict[str, bytes]
    image: MetadataImage
    epoch: int
    torn: tuple[str, int] | None


@pytest.fixture
def root() -> Iterator[Path]:
    with quick_directory() as path:
        yield path


def make_base(root: Path, *, killed: bool) -> Base:
    home = Home(root / "home", config=SMALL)
    home.disk = QuickDisk()
    images: list[MetadataImage] = []

    async def work(node: MetadataNode) -> None:
        for number in range(4):
            await node.submit(topics(f"t{number}"))
            if number % 2:
                await node.snapshot()
        if killed:
            images.append(node.image)
            await node.submit(topics(LAST))
        else:
            await node.submit(topics(LAST))
            images.append(node.image)

    node = home.life(work, killed=killed)
    newest = max(home.metadata.glob("*.log"))
    torn = None
    if killed:
        name = str(newest.relative_to(home.path))
        torn = (name, newest.read_bytes().rindex(LAST.encode()) - 80)
    files = {
        str(path.relative_to(home.path)): path.read_bytes()[:INDEX_BYTES]
        if path.suffix in (".index", ".timeindex")
        else path.read_bytes()
        for path in sorted(home.path.rglob("*"))
        if path.is_file()
    }
    return Base(home, files, images[0], node.leader_epoch, torn)


def start(base: Base, case: Damaged) -> MetadataNode | str:
    home = base.home
    shutil.rmtree(home.path)
    for name, data in {**base.files, case.file: case.data}.items():
        path = home.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        return home.life(killed=True)
    except UnusableMetadataError as error:
        return str(error)


def facts(image: MetadataImage) -> dict[str, Any]:
    return {
        "topics": image.topics_by_name,
        "ids": image.topics_by_id,
        "brokers": image.brokers,
        "configs": image.configs,
        "features": image.features,
    }


def validate(base: Base, case: Damaged, found: MetadataNode | str) -> str:
    if isinstance(found, str):
        return "" if case.file in found else f"refused without naming the file: {found}"
    if found.leader_epoch <= base.epoch:
        return f"epoch {found.leader_epoch} again"
    seen = facts(found.image)
    if seen == facts(base.image):
        is_torn = base.torn is None or (case.file == base.torn[0] and case.at >= base.torn[1])
        return "" if is_torn else "what was flushed last is gone"
    without_last = {n: t for n, t in found.image.topics_by_name.items() if n != LAST}
    if base.torn is not None and without_last == base.image.topics_by_name:
        return ""
    return f"other metadata: {sorted(found.image.topics_by_name)}"


@pytest.mark.parametrize("killed", [False, True], ids=["clean", "killed"])
def test_the_same_metadata_or_a_refusal(killed: bool, root: Path) -> None:
    base = make_base(root, killed=killed)
    wrong = []
    for case in drawn(base.files, share=SHARE):
        complaint = validate(base, case, start(base, case))
        if complaint:
            wrong.append(f"{case}: {complaint}")
    assert not wrong, f"{len(wrong)} defects:\n" + "\n".join(wrong[:40])
