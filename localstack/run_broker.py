"""One broker that tiers to LocalStack's S3, without Docker: what `make run-s3` starts.

Both run until Ctrl-C or SIGTERM, or until one of them ends. The broker is stopped first, while it
can still reach its store. Each run begins empty: LocalStack keeps no object, and a log that
outlived its remote segments would miss them.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUCKET = "tidemark"
STOP_S = 30.0
Processes = list["subprocess.Popen[str]"]


def main() -> None:
    """Start both, wait, stop both; exit code 0 when both ran until they were told to stop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=9092, help="the broker's, for clients")
    parser.add_argument("--s3-port", type=int, default=4566, help="LocalStack's; 0: a free one")
    parser.add_argument(
        "--override", action="append", default=[], metavar="K=V", help="one broker setting"
    )
    asked = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    data = Path(tempfile.mkdtemp(prefix="tidemark-s3-"))
    running: Processes = []
    told_to_stop = False
    try:
        run(asked, data, running)
    except KeyboardInterrupt:
        told_to_stop = True
    finally:
        codes = [stop(process) for process in reversed(running)]
        shutil.rmtree(data, ignore_errors=True)
    sys.exit(0 if told_to_stop and codes == [0, 0] else 1)


def interrupt(*_: object) -> None:
    """End the run; from here on stopping has its own deadlines and is not interrupted again."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def run(asked: argparse.Namespace, data: Path, running: Processes) -> None:
    """Start LocalStack, then the broker; return when one of them has ended."""
    say("starting LocalStack's S3")
    place = ["--port", str(asked.s3_port), "--data", str(data / "s3"), "--bucket", BUCKET]
    store = start(running, [str(HERE / "start.py"), *place], stdout=subprocess.PIPE)
    assert store.stdout is not None
    ready = store.stdout.readline().strip()
    if not ready:
        return  # it has said why
    url = ready.removeprefix("ready endpoint=")
    say(f"LocalStack's S3 is ready: {url}/{BUCKET}")
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    command = ["dev", "--data", str(data), "--port", str(asked.port), "--s3", f"{url}/{BUCKET}"]
    overrides = [f"--override={one}" for one in asked.override]
    broker = start(running, ["-m", "tidemark.cli", *command, *overrides])
    while broker.poll() is None:
        if store.poll() is not None:
            say("LocalStack has ended, so the broker stops")
            return
        time.sleep(0.2)


def start(
    running: Processes, arguments: list[str], stdout: int | None = None
) -> "subprocess.Popen[str]":
    """Start a Python program that does not see the terminal's Ctrl-C: it is stopped in its turn."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=stdout, text=True, start_new_session=True
    )
    running.append(process)
    return process


def stop(process: "subprocess.Popen[str]") -> int:
    """Ask it to end, make it end after a while; returns its exit code."""
    process.terminate()
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def say(message: str) -> None:
    """Tell the person at the terminal."""
    print(f"run-s3: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
