"""Where ``s3`` artifacts go."""

from abc import ABC, abstractmethod
from datetime import datetime


class ObjectStore(ABC):
    """Where ``s3`` artifacts go, if there is an S3 endpoint: names are those of blobs."""

    @abstractmethod
    def upload_url(self, name: str, content_type: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for one PUT with exactly this content-type. Nothing is sent."""

    @abstractmethod
    def download_url(self, name: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for a GET, whole or in ranges. Nothing is sent.

        What is read is an attachment.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """The object is not there any more. Safe to repeat."""
