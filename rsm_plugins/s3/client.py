"""One bucket of S3 through boto3: its client, and calls that end in time with an error of ours.

boto3 bounds a wait for bytes and the number of attempts, not a whole call. So each call has a
deadline, kept per thread, which is checked before every attempt and before every block of a body
that is sent. A call ends at most one silence (`read.timeout.ms`) after its deadline.

boto3 is imported with this module (0.2 s): `plugin.py` does that when it is configured, not before.
"""

import contextlib
import io
import logging
import threading
import time
from collections.abc import Container
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound

from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.s3.errors import (
    LIBRARY_ERRORS,
    RefusedError,
    code_and_status,
    error_class,
    is_heard,
    status_in,
    storage_error,
)
from rsm_plugins.s3.settings import S3Options
from rsm_plugins.settings import PREFIX

log = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 8.0
_PROBE_ATTEMPTS = 2


def make_client(options: S3Options, *, timeout_s_max: float, attempts: int) -> Any:
    """A client of S3, with credentials found by the library's own chain.

    Raises:
        ValueError: The library does not accept a setting.
    """
    if isinstance(options.verify, str) and not Path(options.verify).is_file():
        raise ValueError(f"{PREFIX}tls.ca.file={options.verify}: allowed is the path of a PEM file")
    # Below INFO these log signatures and the headers that carry them. urllib3 also warns if more
    # connections were in use than are kept, which is harmless.
    for name, least in (
        ("boto3", logging.INFO),
        ("botocore", logging.INFO),
        ("botocore.credentials", logging.WARNING),
        ("urllib3", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, least))
    style = {None: "auto", True: "path", False: "virtual"}[options.path_style]
    s3: dict[str, Any] = {"addressing_style": style}
    if options.has_checksums and not (options.endpoint_url or "").startswith("http:"):
        # TLS and the checksum protect the body: a second hash of it (0.6 CPU s a GiB) adds nothing.
        s3["payload_signing_enabled"] = False
    config = Config(
        connect_timeout=min(options.connect_timeout_s, timeout_s_max),
        read_timeout=min(options.read_timeout_s, timeout_s_max),
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=options.connections_max,
        tcp_keepalive=True,
        user_agent_extra="app/tidemark",
        s3=s3,
        # Checksums are computed and compared here; chunked trailers are refused by older stores.
        # DeleteObjects alone gets one from the library, for it must have one.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = boto3.session.Session(profile_name=options.profile, region_name=options.region)
        return session.client(
            "s3", endpoint_url=options.endpoint_url, verify=options.verify, config=config
        )
    except ProfileNotFound as e:
        raise ValueError(
            f"{PREFIX}profile={options.profile}: allowed is a profile of the shared AWS files"
        ) from e
    except (BotoCoreError, ValueError, OSError) as e:
        raise ValueError(
            f"{PREFIX}bucket={options.bucket}: no client can be made of the settings: {e}"
        ) from e


class S3Calls:
    """Calls one operation of S3 on one bucket. Thread-safe."""

    def __init__(self, client: Any, bucket: str, timeout_s: float) -> None:
        self._client, self._bucket, self._timeout_s = client, bucket, timeout_s
        self._call = threading.local()
        client.meta.events.register("before-send.s3", lambda **_: self.check_deadline())
        client.meta.events.register_last("before-call.s3", _send_small_bodies_at_once)

    def __call__(
        self,
        operation: str,
        key: str = "",
        *,
        hear: Container[str] = (),
        refusals: bool = False,
        **params: Any,
    ) -> Any:
        """Make one call, with the library's retries.

        Args:
            operation: A method of boto3's client.
            key: The object's whole key; empty for calls that have none.
            hear: Error codes, and statuses as text, to be raised as RefusedError.
            refusals: Raise RefusedError also where the store refuses this call itself.
            params: Further parameters of the operation.

        Raises:
            RefusedError: An error of `hear`, or a refusal if `refusals` is set.
            RemoteStorageError, RetriableRemoteStorageError, RemoteResourceNotFoundError: The call
                failed.
        """
        if key:
            params["Key"] = key
        self._call.deadline_s = time.monotonic() + self._timeout_s
        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **params)
        except ClientError as e:
            code, status = code_and_status(e)
            if is_heard(code, status, hear, refusals=refusals):
                raise RefusedError(code, status) from None
            sent_checksum = operation == "delete_objects" or any(
                name.startswith("Checksum") for name in params
            )
            # Not `from e`: the store's message may repeat what it was sent.
            raise storage_error(
                e, self.doing(operation, key), sent_checksum=sent_checksum
            ) from None
        except LIBRARY_ERRORS as e:
            raise storage_error(e, self.doing(operation, key)) from e

    def doing(self, operation: str, key: str) -> str:
        """An operation and its object, for messages."""
        return f"{operation} of s3://{self._bucket}/{key}"

    def error(self, code: str, message: str, operation: str, key: str) -> RemoteStorageError:
        """The error of a single key in an answer about many."""
        return error_class(code, status_in(code))(
            f"{self.doing(operation, key)} failed: {code}: {message[:200]}"
        )

    def check_deadline(self) -> None:
        """Check whether this thread's call may continue.

        Raises:
            RetriableRemoteStorageError: Its time is over.
        """
        if time.monotonic() > self._call.deadline_s:
            raise RetriableRemoteStorageError(
                f"a call to s3://{self._bucket} took longer than {PREFIX}api.call.timeout.ms"
                f"={self._timeout_s * 1000:.0f}"
            )

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()


def list_page(calls: S3Calls, **params: Any) -> tuple[Any, dict[str, Any]]:
    """A page of a listing, and the parameters of the next one; empty: there is none.

    Uses ListObjectsV2, or ListObjects where the store refuses that, or answers as for the old one.
    The parameters of the next page are of the same kind as those of this one.
    """
    page = None
    if "Marker" not in params:
        with contextlib.suppress(RefusedError):
            page = calls("list_objects_v2", refusals=True, **params)
    if page is None:
        page = calls("list_objects", **params)
    if not page.get("IsTruncated"):
        return page, {}
    if token := page.get("NextContinuationToken"):
        return page, params | {"ContinuationToken": token}
    found = page.get("Contents") or [{"Key": ""}]
    marker = page.get("NextMarker") or found[-1]["Key"]
    if marker <= params.get("Marker", ""):
        raise RemoteStorageError("list_objects: the store has more, and lists the same page again")
    return page, params | {"Marker": marker}


def _send_small_bodies_at_once(params: dict[str, Any], **_: Any) -> None:
    """Send a body of plain bytes without first asking the store, which costs a round trip each."""
    if isinstance(params.get("body"), io.BytesIO):
        params["headers"].pop("Expect", None)


def probe(options: S3Options) -> None:
    """Check once whether the bucket can be used, quickly.

    By a listing of one key. Its error has a message (that of a HEAD has none). It also needs the
    permission without which a missing object looks like a forbidden one. A store that does not
    answer now is no error: the tier repeats its requests without end.

    Raises:
        ValueError, RemoteStorageError: The settings or the permissions are wrong.
    """
    client = make_client(options, timeout_s_max=_PROBE_TIMEOUT_S, attempts=_PROBE_ATTEMPTS)
    calls = S3Calls(client, options.bucket, _PROBE_TIMEOUT_S)
    try:
        list_page(calls, Prefix=options.prefix, MaxKeys=1)
    except RetriableRemoteStorageError as e:
        log.warning("the store does not answer now, later calls try again: %s", e)
    except RemoteStorageError as e:
        raise RemoteStorageError(f"{PREFIX}bucket={options.bucket} cannot be used: {e}") from e
    finally:
        calls.close()
