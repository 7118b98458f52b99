"""One broker that tiers to LocalStack's S3, without Docker, for `make run-s3`.

Both run until Ctrl-C or SIGTERM, or until one of them ends. The broker is stopped first, while it
can still reach its store. Each run begins empty: LocalStack keeps no object, and a log that
outlived its remote segments would miss them.
"""

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUCKET = "tidemark"
STOP_S = 30.0
POLL_S = 0.2
LINES_SHOWN = 15
Processes = list["subprocess.Popen[str]"]


def main() -> None:
    """Start both, wait, stop both; exit code 0 if both ran until a stop was requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=9092, help="the broker's, for clients")
    parser.add_argument("--s3-port", type=int, default=4566, help="LocalStack's; 0: a free one")
    parser.add_argument(
        "--override", action="append", default=[], metavar="K=V", help="one broker setting"
    )
    asked = parser.parse_args()
    told = threading.Event()  # polled: an exception could strike between a start and its record
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told.set())
    data = Path(tempfile.mkdtemp(prefix="tidemark-s3-"))
    log = data.with_name(f"{data.name}.localstack.log")  # kept if LocalStack ends by itself
    running: Processes = []
    try:
        run(asked, data, log, running, told)
    finally:
        is_asked, ended = told.is_set(), [process.poll() for process in running]
        codes = [stop(process) for process in reversed(running)]
        shutil.rmtree(data, ignore_errors=True)
        if not is_asked:  # the last lines on the screen: the broker has printed more
            for line in why_ended(ended, log):
                say(line)
        if is_asked or not is_kept(ended, log):
            log.unlink(missing_ok=True)
    sys.exit(0 if told.is_set() and codes == [0, 0] else 1)


def why_ended(codes: list[int | None], log: Path) -> list[str]:
    """Name the process that ended first, how it ended, and where its lines are.

    Args:
        codes: Exit codes of LocalStack and of the broker, as far as they were started, before
            either was stopped; None: it ran.
        log: Of LocalStack; the broker prints on the screen.
    """
    names = {0: "LocalStack", 1: "the broker"}
    first = next((place for place, code in enumerate(codes) if code is not None), None)
    if first is None:
        return []
    code = codes[first] or 0
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    said = f"{names[first]} ended {how}, without being asked to, so all ended"
    if first == 1 or not is_kept(codes, log):
        return [f"{said}; see its lines above"]
    lines = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
    return [f"{said}; its log is {log}, and ends with:", *(f"  {line}" for line in lines)]


def is_kept(codes: list[int | None], log: Path) -> bool:
    """True if LocalStack ended by itself and said something."""
    return bool(codes and codes[0] is not None and log.exists() and log.stat().st_size)


def run(
    asked: argparse.Namespace, data: Path, log: Path, running: Processes, told: threading.Event
) -> None:
    """Start LocalStack, then the broker; return when one has ended, or `told` is set."""
    say("starting LocalStack's S3")
    place = ["--port", str(asked.s3_port), "--data", str(data / "s3"), "--bucket", BUCKET]
    place += ["--parent", str(os.getpid()), "--log", str(log)]
    store = start(running, [str(HERE / "start.py"), *place], stdout=subprocess.PIPE)
    url = url_of(store, told)
    if url is None:
        return
    say(f"LocalStack's S3 is ready: {url}/{BUCKET} (its log: {log})")
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    command = ["dev", "--data", str(data), "--port", str(asked.port), "--s3", f"{url}/{BUCKET}"]
    overrides = [f"--override={one}" for one in asked.override]
    # By its own name: it prints commands to type, which begin with it.
    program = str(Path(sys.executable).with_name("tidemark"))
    broker = start(running, [program, *command, *overrides])
    while broker.poll() is None and not told.wait(POLL_S):
        if store.poll() is not None:
            say("LocalStack has ended, so the broker stops")
            return


def url_of(store: "subprocess.Popen[str]", told: threading.Event) -> str | None:
    """Wait for its ready line; None if it ended with a message, or `told` is set."""
    assert store.stdout is not None
    while not told.is_set():
        if select.select([store.stdout], [], [], POLL_S)[0]:
            return store.stdout.readline().strip().removeprefix("ready endpoint=") or None
    return None


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
    """Print a line for the person at the terminal."""
    print(f"run-s3: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
