"""Bytes of artifacts behind an S3 endpoint, of Amazon or compatible.

Import this only where an endpoint is set: boto3 takes long to import.
"""

from datetime import datetime
from http import HTTPStatus

import structlog
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock, ObjectStore

log = structlog.get_logger()

_CONFIG = Config(
    signature_version="s3v4",
    s3={"addressing_style": "path"},  # which needs no DNS name for each bucket
    connect_timeout=5,
    read_timeout=7,
    retries={"mode": "standard", "total_max_attempts": 3},
    # otherwise boto3 signs headers that no client sends
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class S3(ObjectStore):
    """An existing bucket; URLs are signed with Amazon's "Signature Version 4"."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        region: str,
        access_key_id: str,
        secret_access_key: str,
        clock: Clock,
    ) -> None:
        session = Session(access_key_id, secret_access_key, region_name=region)
        self._client = session.client("s3", endpoint_url=endpoint, config=_CONFIG)
        self._bucket, self._clock = bucket, clock

    def upload_url(self, name: str, content_type: str, expiry: datetime) -> str:
        return self._url("put_object", name, expiry, ContentType=content_type)

    def download_url(self, name: str, expiry: datetime) -> str:
        return self._url("get_object", name, expiry, ResponseContentDisposition="attachment")

    def remove(self, name: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=name)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == HTTPStatus.NOT_FOUND and code != "NoSuchBucket":
                return  # Amazon does not answer so, but others may
            log.error("object-store-refused", status=status, s3_code=code)
            raise ServiceUnavailable("the object store did not serve the request, try again") from error
        except BotoCoreError as error:
            log.error("object-store-unreachable", error=type(error).__name__)
            raise ServiceUnavailable("the object store cannot be reached, try again") from error

    def _url(self, operation: str, name: str, expiry: datetime, **signed: str) -> str:
        return str(
            self._client.generate_presigned_url(
                operation,
                Params={"Bucket": self._bucket, "Key": name, **signed},
                ExpiresIn=whole_seconds(expiry - self._clock.wall_time()),
            )
        )
