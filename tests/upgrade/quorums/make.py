"""Make the archive of three combined nodes of today.

    PYTHONPATH=. python tests/upgrade/quorums/make.py before-broker-nodes

An archive is never made again: a capability that changes what is on disk adds one under a new name.
"""

import sys
import tempfile
from pathlib import Path

from tests.support.samples.upgraded_quorum import DATA, make_archive

if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    archive = DATA / f"{sys.argv[1]}.tar.xz"
    if archive.exists():
        sys.exit(f"{archive} is there already, and stays as it is")
    with tempfile.TemporaryDirectory() as directory:
        make_archive(Path(directory), archive)
    sys.stdout.write(f"{archive.name}: {archive.stat().st_size} bytes\n")
