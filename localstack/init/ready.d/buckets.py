"""Makes the buckets named in TIDEMARK_BUCKETS (separated by spaces) once LocalStack's S3 is up.

LocalStack itself runs this, in the container and without Docker alike, in its own interpreter.
It must not assume anything of Tidemark is installed there. A bucket that exists is left alone.
"""

import os

import boto3

from localstack import config

client = boto3.client(
    "s3",
    endpoint_url=config.internal_service_url(host="127.0.0.1"),
    region_name="us-east-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
for bucket in os.environ["TIDEMARK_BUCKETS"].split():
    client.create_bucket(Bucket=bucket)
