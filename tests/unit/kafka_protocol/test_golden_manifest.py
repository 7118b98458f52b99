"""The golden data is what was recorded: nothing edited, nothing lost."""

import hashlib
import json

from tests.support.samples.golden_files import GOLDEN


def test_every_golden_file_has_the_recorded_size_and_hash() -> None:
    manifest = json.loads((GOLDEN / "MANIFEST.json").read_text())
    for entry in manifest["files"]:
        data = (GOLDEN / entry["path"]).read_bytes()
        assert len(data) == entry["size"], entry["path"]
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], entry["path"]
