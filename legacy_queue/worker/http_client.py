"""Sends HTTP requests, with timeouts, and repeats them if that can help.

Never puts a URL into an error: it may be a signed URL.
"""

from typing import Any

import requests

from legacy_queue.worker.worker_settings import Sign, WorkerClock

# In seconds: to connect, and until the answer. claimWork may take 20, and a large upload is stored first.
TIMEOUT = (5.0, 60.0)
RETRIES = 5
FIRST_DELAY = 0.5  # seconds; doubled for each further retry


class Unavailable(Exception):
    """No answer, a 5xx, or an answer that is not understood: the same request may succeed later."""


class Refused(Exception):
    """An answer from 300 to 499: the same request would be refused again.

    Shows the first line of the queue's message; the original queue repeats the request below it.
    """

    def __init__(self, operation: str, answer: requests.Response) -> None:
        try:
            body = answer.json()
        except ValueError:  # Azure answers in XML
            body = {"code": answer.headers.get("x-ms-error-code", "")}
        detail = f"{body.get('code', '')}: {body.get('message', '')}".partition("\n")[0]
        super().__init__(f"{operation}: {answer.status_code} {detail}".rstrip(": "))


def unsigned(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave the request unsigned, also without the credentials of ~/.netrc: Azure would refuse them."""
    return request


class Http:
    """Keeps connections open until ``close``.

    The loop is written by hand. urllib3's Retry would repeat a request with its first Hawk signature, whose
    nonce the queue has seen, and would not repeat a request whose answer breaks off in its body.
    """

    def __init__(self, clock: WorkerClock) -> None:
        self._clock = clock
        self._session = requests.Session()
        self.close = self._session.close

    def send(
        self, operation: str, method: str, url: str, *, sign: Sign = unsigned, **content: Any
    ) -> requests.Response:
        """The answer with a 2xx; repeats a 5xx and a broken connection, with growing delays.

        ``content`` is requests' ``json``, or ``headers`` and ``data``, an open file. Raises Refused for a
        3xx or 4xx, which is never repeated, and Unavailable if the last attempt fails too. ``operation`` is
        for these errors.
        """
        for attempt in range(RETRIES + 1):
            if content.get("data"):
                content["data"].seek(0)  # an earlier attempt has read from it
            try:
                answer = self._session.request(
                    method, url, auth=sign, timeout=TIMEOUT, allow_redirects=False, **content
                )
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
            if attempt < RETRIES:
                self._clock.sleep(FIRST_DELAY * 2**attempt)
        raise Unavailable(f"{operation}: {failure}")
