"""The fsspec plugin, configured for a test."""

from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager


def configured(url: str, **settings: str) -> FsspecRemoteStorageManager:
    manager = FsspecRemoteStorageManager()
    manager.configure({"url": url, "node.id": "1", "cluster.id": "c", **settings})
    return manager


def through_s3fs(endpoint: str, bucket: str, **settings: str) -> FsspecRemoteStorageManager:
    return configured(
        f"s3://{bucket}/some/prefix",
        **{
            "option.key": "test",
            "option.secret": "test",
            "option.endpoint_url": endpoint,
            "option.client_kwargs": '{"region_name": "us-east-1"}',
            **settings,
        },
    )
