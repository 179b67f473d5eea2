"""Sends HTTP requests, with timeouts, and repeats them if that can help.

Never puts a URL into an error: it may be a signed URL.
"""

import os
import threading
from datetime import timedelta
from typing import IO, Any

import requests

from legacy_queue.worker.worker_settings import Sign, WorkerClock

# In seconds: to connect, and until the answer. A large upload is stored first.
TIMEOUT = (5.0, 25.0)
UPLOAD_TIMEOUT = (30.0, 60.0)
RETRIES = 5
FIRST_DELAY = timedelta(seconds=0.5)  # doubled for each further retry


class Unavailable(Exception):
    """No answer, a 5xx, or an answer that is not understood: the same request may succeed later."""


class Refused(Exception):
    """An answer from 300 to 499: the same request would be refused again.

    Shows the first line of the queue's message; the original queue repeats the request below it.
    """

    def __init__(self, operation: str, answer: requests.Response) -> None:
        try:
            body = answer.json()
            detail = f"{body['code']}: {body['message']}".partition("\n")[0]
        except (ValueError, LookupError, TypeError, RecursionError):  # Azure answers in XML
            detail = answer.headers.get("x-ms-error-code", "")
        super().__init__(f"{operation}: {answer.status_code} {detail}".rstrip(": "))


def unsigned(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave the request unsigned, also without the credentials of ~/.netrc: Azure would refuse them."""
    return request


class Http:
    """Keeps connections open until ``close``. After ``stopping`` is set, requests are not repeated.

    The loop is written by hand. urllib3's Retry would repeat a request with its first Hawk signature, whose
    nonce the queue has seen, and would not repeat a request whose answer breaks off in its body.
    """

    def __init__(self, clock: WorkerClock, stopping: threading.Event) -> None:
        self._clock = clock
        self._stopping = stopping
        self._session = requests.Session()
        self.close = self._session.close

    def send(
        self,
        operation: str,
        url: str,
        method: str = "POST",
        sign: Sign = unsigned,
        give_up: threading.Event | None = None,
        file: IO[bytes] | None = None,
        **content: Any,
    ) -> requests.Response:
        """The answer with a 2xx; repeats a 5xx and a broken connection, with growing delays.

        The body is the ``file``, from its start each time, or requests' ``json`` in ``content``. Raises
        Refused for a 3xx or 4xx, which is never repeated, and Unavailable if the last attempt fails too.
        ``operation`` is for these errors. ``give_up`` ends the repetitions in place of ``stopping``.
        """
        request = {"timeout": TIMEOUT, "allow_redirects": False, **content}
        for attempt in range(RETRIES + 1):
            if file:
                # requests would send an empty file chunked, which Azure refuses
                request["data"] = file if file.seek(0, os.SEEK_END) else b""
                file.seek(0)
            try:
                answer = self._session.request(method, url, auth=sign, **request)
            except requests.RequestException as broken:
                failure = f"no answer ({type(broken).__name__})"
                if isinstance(broken, requests.exceptions.SSLError):
                    failure += ": if its certificate is not trusted, see legacy-queue ca"
            else:
                if answer.status_code < 300:
                    return answer
                if answer.status_code < 500:
                    raise Refused(operation, answer)
                failure = f"answered {answer.status_code}"
            if attempt == RETRIES or self._clock.wait(give_up or self._stopping, FIRST_DELAY * 2**attempt):
                break
        raise Unavailable(f"{operation}: {failure}")
