"""LocalStack's S3 in this process; start.py runs it with the interpreter of its environment.

Everything the outside can see is fixed here. It listens on 127.0.0.1 alone, opens no connection
over the network, writes below --data alone, and ends with its parent. Three settings have no public
knob in 4.13.1 and are set in its modules. One of its locks is repaired there as well; the exact pin
makes that safe.
"""

import argparse
import functools
import json
import os
import shutil
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Set LocalStack up, then run it until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True, help="end when it is gone")
    parser.add_argument("--temporary", action="store_true", help="remove the data at the end")
    asked = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LocalStack's own lines are for people
    os.chdir(asked.data)
    os.environ |= settings(asked.port, asked.data)
    ready_scripts = asked.data / "etc" / "localstack" / "init" / "ready.d"
    shutil.rmtree(ready_scripts, ignore_errors=True)
    shutil.copytree(HERE / "init" / "ready.d", ready_scripts)

    import localstack.services.s3.provider as s3
    from localstack.logging.setup import setup_logging_from_config
    from localstack.runtime import current
    from localstack.runtime.server import twisted as web_server
    from localstack.services.s3.storage import ephemeral
    from localstack.utils.aws import aws_stack

    s3.DEFAULT_S3_TMP_DIR = str(asked.data / "s3")  # else: one directory in /tmp for everybody
    aws_stack.CACHE_S3_HOSTNAME_DNS_STATUS = False  # else: asks the name server at the start
    endpoints = web_server.endpoints
    endpoints.TCP4ServerEndpoint = functools.partial(  # else: GATEWAY_LISTEN gives the port alone
        endpoints.TCP4ServerEndpoint, interface="127.0.0.1"
    )
    close_what_a_failed_read_opened(ephemeral, s3.S3Provider)
    url = f"http://127.0.0.1:{asked.port}"
    setup_logging_from_config()
    runtime = current.initialize_runtime()

    def end(*_: object) -> None:
        """There is nothing to save, and LocalStack's own remedy takes seconds."""
        if asked.temporary:
            shutil.rmtree(asked.data, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=announce, args=(url, answers), daemon=True).start()
    threading.Thread(target=follow, args=(asked.parent,), daemon=True).start()
    runtime.run()
    sys.exit("localstack: ended by itself")


def settings(port: int, data: Path) -> dict[str, str]:
    """LocalStack's environment: S3 alone, loaded at once, quiet, offline."""
    return {
        "SERVICES": "s3",
        "EAGER_SERVICE_LOADING": "1",
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "FILESYSTEM_ROOT": str(data),
        "OVERRIDE_IN_DOCKER": "0",  # in a container, too, its files belong below `data`
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "LS_LOG": "warn",  # else: a line for every request
    }


def close_what_a_failed_read_opened(ephemeral: Any, provider: Any) -> None:
    """Let no failed GET keep the read lock of its object: every later writer would wait for it.

    A GET fails at two places if its object is deleted meanwhile. `get_object` opens the object
    before it checks that it still exists. The web server does not close the body after an error.
    """
    opened = threading.local()
    plain_open, plain_get = ephemeral.EphemeralS3ObjectStore.open, provider.get_object
    plain_read = ephemeral.EphemeralS3StoredObject.read

    def remembering_open(*args: Any, **kwargs: Any) -> Any:
        opened.last = plain_open(*args, **kwargs)
        return opened.last

    @functools.wraps(plain_get)  # LocalStack finds its handlers by their attributes
    def closing_get(*args: Any, **kwargs: Any) -> Any:
        opened.last = None
        try:
            return plain_get(*args, **kwargs)
        except BaseException:
            close(opened.last)
            raise

    def closing_read(stored: Any, size: int = -1) -> Any:
        try:
            return plain_read(stored, size)
        except ValueError:  # its file was closed by a deletion
            if stored._mode == "r":
                close(stored)
            raise

    def close(stored: Any) -> None:
        if stored is not None and not stored.closed:
            stored.close()

    ephemeral.EphemeralS3ObjectStore.open = remembering_open
    ephemeral.EphemeralS3StoredObject.read = closing_read
    provider.get_object = closing_get


def announce(url: str, answers: TextIO) -> None:
    """Print the ready line once the init scripts are through; end the process if one failed."""
    scripts: list[dict[str, str]] = []
    while True:
        try:
            with urllib.request.urlopen(f"{url}/_localstack/init/ready", timeout=5) as answer:
                state = json.load(answer)
        except OSError:
            state = {}
        if state.get("completed"):
            scripts = state["scripts"]
            break
        time.sleep(0.05)
    if not scripts or any(one["state"] != "SUCCESSFUL" for one in scripts):
        print(f"localstack: the buckets could not be made: {scripts}", file=sys.stderr, flush=True)
        os._exit(1)
    print(f"ready endpoint={url}", file=answers, flush=True)


def follow(parent: int) -> None:
    """End this process when its parent has gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
