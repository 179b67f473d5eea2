"""One HTTP request at a time: bounded in time, repeated where a repetition can help.

What a failed request says of itself never holds its URL, which may be a signed one.
"""

import threading
from collections.abc import Callable

import requests

from legacy_queue.worker.clock import Clock

TIMEOUT = (5.0, 30.0)  # seconds to connect, and between two bytes of the answer
RETRIES = 5
FIRST_DELAY = 0.5  # seconds; doubled for each further retry
LONGEST_DELAY = 30.0

Sign = Callable[[requests.PreparedRequest], requests.PreparedRequest]


class Unavailable(Exception):
    """No answer, a 5xx, or an answer that makes no sense: the same request may succeed later."""


def unsigned(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave the request as it is: also without what ~/.netrc holds, which would spoil a signed URL."""
    return request


class Http:
    """A connection of one thread. Once ``give_up`` is set, no request is repeated any more."""

    def __init__(self, clock: Clock, give_up: threading.Event) -> None:
        self._session = requests.Session()
        self._clock = clock
        self._give_up = give_up

    def send(
        self,
        method: str,
        url: str,
        *,
        sign: Sign = unsigned,
        body: bytes | None = None,
        retries: int = RETRIES,
    ) -> requests.Response:
        """The first answer below 500; 5xx and broken connections are tried again with growing delays.

        Raises Unavailable when the last try failed as well. A 4xx is an answer and never tried again.
        """
        headers = {"Content-Type": "application/json"} if body is not None else {}
        for attempt in range(retries + 1):
            try:
                answer = self._session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    auth=sign,
                    timeout=TIMEOUT,
                    allow_redirects=False,
                )
            except requests.RequestException as broken:
                failure, pause = f"no answer ({type(broken).__name__})", 0.0
            else:
                if answer.status_code < 500:
                    return answer
                failure, pause = f"answered {answer.status_code}", _retry_after(answer)
            delay = min(max(pause, FIRST_DELAY * 2**attempt), LONGEST_DELAY)
            if attempt < retries and self._clock.wait(self._give_up, delay):
                break
        raise Unavailable(failure)

    def close(self) -> None:
        self._session.close()


def _retry_after(answer: requests.Response) -> float:
    seconds = answer.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 0.0
