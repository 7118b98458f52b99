"""A bucket as a broker's remote tier, and what is in it as seen by boto3 alone."""

from typing import Any

from tests.support.stores.s3 import S3Endpoint

PREFIX = "tier"
S3_PLUGIN = "rsm_plugins.s3:S3RemoteStorageManager"


class S3Tier:
    """A bucket of its own, and the settings of a broker that reaches it at `url`."""

    def __init__(self, s3: S3Endpoint, url: str) -> None:
        self.bucket, self.url = s3.new_bucket(), url
        self._client: Any = s3.client()

    def settings(self, **more: str) -> dict[str, str]:
        """Broker settings; `more` are the plugin's, with `_` for `.`."""
        own = {
            "bucket": self.bucket,
            "region": "us-east-1",
            "endpoint.url": self.url,
            "prefix": PREFIX,
        } | {key.replace("_", "."): value for key, value in more.items()}
        return {"remote.log.storage.manager.class.name": S3_PLUGIN} | {
            f"rsm.config.{key}": value for key, value in own.items()
        }

    def key(self, key: str) -> str:
        """The whole key of an object of `listing`."""
        return f"{PREFIX}/{key}"

    def listing(self, start: str = "") -> dict[str, int]:
        """Every object by key below the prefix but claims, and every upload that is still open.

        Args:
            start: of the keys that are wanted.
        """
        found = {}
        where = {"Bucket": self.bucket, "Prefix": self.key(start)}
        for page in self._client.get_paginator("list_objects_v2").paginate(**where):
            for one in page.get("Contents", []):
                key = one["Key"].removeprefix(f"{PREFIX}/")
                if not key.startswith("claims/"):
                    found[key] = one["Size"]
        for page in self._client.get_paginator("list_multipart_uploads").paginate(**where):
            for one in page.get("Uploads", []):
                found[f"open upload {one['UploadId']} of {one['Key']}"] = 0
        return found

    def segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the complete segments in the bucket, ascending."""
        keys = [key.split("/") for key in self.listing() if key.endswith(".manifest")]
        return sorted(
            int(name.split("-")[0])
            for folder, number, name in keys
            if folder.startswith(f"{topic}-") and number == str(partition)
        )
