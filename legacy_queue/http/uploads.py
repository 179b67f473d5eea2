"""Where signed URLs lead that upload an artifact through this server: a plain PUT, as to S3.

What signs the URL is all the authorization there is, and nothing that is stored is ever read from here.
"""

from collections.abc import Callable, Iterator

from flask import Response, request
from werkzeug.exceptions import HTTPException

from legacy_queue.domain.errors import LengthRequired, MalformedPayload, QueueError
from legacy_queue.services import Services
from legacy_queue.services.upload_slots import UploadSlots
from legacy_queue.services.uploads import Sent

PATH = "/uploads"

_CHUNK = 256 * 1024  # bytes


def upload_view(services: Services, slots: UploadSlots) -> Callable[[str], Response]:
    """``PUT /uploads/<ticket>?signature=..``: 200 and an ETag once the body is stored as a whole.

    What finds no slot is refused unread.
    """

    def upload(ticket: str) -> Response:
        announced, headers = request.environ.get("CONTENT_LENGTH", ""), request.headers
        if not announced.isdecimal():
            raise LengthRequired("content-length is missing: a body in chunks is not accepted")
        length = int(announced)
        request.max_content_length = length + 1  # not that of JSON; where it is reached, Werkzeug refuses
        sent = Sent(
            length,
            headers.get("content-type", ""),
            headers.get("content-encoding"),
            headers.get("content-md5"),
        )
        with slots.taken(ticket):
            etag = services.uploads.receive(ticket, request.args.get("signature", ""), sent, _chunks())
        response = Response(status=200, headers={"ETag": f'"{etag}"'})
        del response.headers["Content-Type"]
        return response

    return upload


def _chunks() -> Iterator[bytes]:
    """The body as it comes in: no faster than it is taken."""
    while True:
        try:
            chunk = request.stream.read(_CHUNK)
        except (HTTPException, QueueError):
            raise
        except Exception as error:  # noqa: BLE001  gunicorn's, or a connection that ends
            raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None
        if not chunk:
            return
        yield chunk
