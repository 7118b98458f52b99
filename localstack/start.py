"""Starts LocalStack's S3 on 127.0.0.1 without Docker: for development, tests and benchmarks.

`python localstack/start.py --port 0 --data DIR --bucket NAME` prints one line on stdout,
`ready endpoint=http://127.0.0.1:PORT`, once the buckets are there; all else goes to stderr. It ends
on SIGTERM, on Ctrl-C, and when the process that started it is gone.

LocalStack gets a virtual environment of its own, made on the first start: its pins
(requirements.txt) would fight with everybody else's. Standard library only, so that any interpreter
can run this file.
Nothing is kept over a restart: LocalStack's own limit.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
BUCKET = "tidemark"


def main() -> None:
    """Make the environment if need be, then become the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=4566, help="0 takes a free one")
    parser.add_argument("--data", type=Path, help="scratch directory, default: a temporary one")
    parser.add_argument(
        "--bucket", action="append", help=f"made at the start; repeatable; default: {BUCKET}"
    )
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        help="end when this process, the parent, is gone",
    )
    parser.add_argument("--log", type=Path, help="takes what LocalStack prints; default: stderr")
    parser.add_argument("--prepare", action="store_true", help="make the environment, no more")
    asked = parser.parse_args()
    python = prepared_python()
    if asked.prepare:
        return
    port = usable_port(asked.port)
    data = (asked.data or Path(tempfile.mkdtemp(prefix="localstack-"))).absolute()
    data.mkdir(parents=True, exist_ok=True)
    server = [
        str(python),
        str(HERE / "server.py"),
        "--data",
        str(data),
        "--parent",
        str(asked.parent),
    ]
    server += ["--port", str(port)]
    if asked.data is None:
        server.append("--temporary")
    os.environ["TIDEMARK_BUCKETS"] = " ".join(asked.bucket or [BUCKET])
    if asked.log:
        with asked.log.open("ab") as log:
            os.dup2(log.fileno(), 2)
    os.execv(python, server)


def prepared_python() -> Path:
    """Return the interpreter of LocalStack's environment, making the environment when needed.

    Two starts at once wait for each other. The stamp is written last: what an interrupted or failed
    installation left has none, or another one, and is made again.
    """
    place = Path(os.environ.get("TIDEMARK_LOCALSTACK_VENV") or HERE.parent / ".localstack-venv")
    python = place / "bin" / "python"
    stamp = place / ".installed"
    wanted = f"{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()} {sys.version}\n"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(place.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python.exists() and stamp.exists() and stamp.read_text() == wanted:
            return python
        say(f"making {place} (once; about 200 MB, half a minute)")
        began = time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(place))
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        run(*pip, "install", "--no-deps", "--requirement", str(REQUIREMENTS))
        stamp.write_text(wanted)
        say(f"{place} is ready after {time.monotonic() - began:.0f} s")
    return python


def run(*command: str) -> None:
    """Run a step of the installation; end with its exit code where it fails."""
    ended = subprocess.run(command, stdout=sys.stderr, check=False)
    if ended.returncode:
        say(f"failed with exit code {ended.returncode}: {' '.join(command)}")
        sys.exit(ended.returncode)


def usable_port(asked: int) -> int:
    """Return `asked`, or a free port for 0; exit if the port is in use."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", asked))
        except OSError as error:
            say(f"port {asked} cannot be used: {error.strerror}; --port takes another")
            sys.exit(1)
        port: int = held.getsockname()[1]
        return port


def say(message: str) -> None:
    """Print a line for the person at the terminal."""
    print(f"localstack: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
