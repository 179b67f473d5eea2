"""The client of the commands and the test kit: what its errors say about a request that failed."""

from collections.abc import Callable

import pytest
import requests

from legacy_queue.credentials import ANONYMOUS, Credentials
from legacy_queue.queue_client import QueueClient, RequestFailed, parse_events
from tests.cli.command_runner import answering

SECRET = "-".join(["an", "access", "token"])
NOT_A_QUEUE = "the server is not a queue that has this endpoint"
REFUSAL = '{"code": "RequestConflict", "message": "it is claimed\\n---\\ndetails"}'


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((409, REFUSAL), "RequestConflict", "it is claimed\n---\ndetails"),
        ((404, "", {"x-ms-error-code": "QueueNotFound"}), "QueueNotFound", "Not Found"),
        *(
            ((status, body), "", said)
            for status, said in ((200, NOT_A_QUEUE), (401, NOT_A_QUEUE), (502, "Bad Gateway"))
            for body in ("<html>", "[]", "{}", '{"message": null}')
        ),
        ((302, "", {"Location": "http://192.0.2.1/"}), "", NOT_A_QUEUE),
    ],
)
def test_the_error_for_a_refused_request_names_server_path_status_and_code(
    answer: tuple[int, str], code: str, message: str
) -> None:
    with answering(answer) as url, pytest.raises(RequestFailed) as failed:
        QueueClient(f"{url}/v1", ANONYMOUS).call("GET", "/v1/ping", expected="alive", sig=SECRET)
    error = failed.value
    assert (error.server, error.path, error.status) == (url, "/v1/ping", answer[0])
    assert (error.code, error.message) == (code, message)
    said = f"{code} {message.partition(chr(10))[0]}".strip()
    assert str(error).replace("  ", " ") == f"GET {url}/v1/ping: {answer[0]} {said}"


def ended() -> None:
    raise RuntimeError("the server has ended")


@pytest.mark.parametrize("check", [lambda: None, ended])
def test_an_error_shows_no_signature_password_or_token(check: Callable[[], object]) -> None:
    with answering((0, "")) as url:
        client = QueueClient(
            f"{url.replace('//', f'//user:{SECRET}@')}/v1", Credentials("me", SECRET), check=check
        )
        with pytest.raises((requests.ConnectionError, RuntimeError)) as failed:
            client.send("GET", f"{client.base_url}/ping?sig={SECRET}", client.credentials)
    said = f"the server at {url} does not answer GET /v1/ping (ConnectionError)"
    assert str(failed.value) == (said if check is not ended else "the server has ended")
    assert failed.value.__context__ is None  # a report of the error could show a context
    shown = str(failed.getrepr(style="long", showlocals=True, funcargs=True))
    assert [each for each in (SECRET, "Hawk", "urllib3") if each in shown] == []


@pytest.mark.parametrize(
    ("location", "named"),
    [("http://127.0.0.1:1/log", "http://127.0.0.1:1"), ("http://.a/log", "{url}"), ("http://[::1/", "{url}")],
)
def test_the_error_for_a_redirect_that_leads_nowhere_names_the_server(location: str, named: str) -> None:
    away = (303, "", {"Location": f"{location}?sig={SECRET}"})
    with answering(away) as url, pytest.raises(requests.RequestException) as failed:
        list(QueueClient(f"{url}/v1", ANONYMOUS).download("/v1/log"))
    said = str(failed.value)
    assert said.startswith(f"the server at {named.format(url=url)} does not answer GET /")
    assert SECRET not in said


def test_a_call_is_repeated_until_the_time_that_the_caller_gives_if_that_can_help() -> None:
    with answering((0, ""), (503, REFUSAL), (200, "{}")) as url:
        assert QueueClient(f"{url}/v1", ANONYMOUS).call("GET", "/v1/ping", retry_until=float("inf")) == {}
    with answering((409, REFUSAL)) as url, pytest.raises(RequestFailed):
        QueueClient(f"{url}/v1", ANONYMOUS).call("GET", "/v1/ping", retry_until=float("inf"))


def test_the_error_for_a_download_that_breaks_off_says_so() -> None:
    with answering((200, "half", {"Content-Length": "8"})) as url:
        content = QueueClient(f"{url}/v1", ANONYMOUS).download("/v1/log")
        with pytest.raises(requests.exceptions.ChunkedEncodingError) as failed:
            list(content)
    assert str(failed.value) == f"the answer of {url} broke off (ChunkedEncodingError)"


def test_each_blank_line_ends_an_event_and_an_incomplete_event_is_dropped() -> None:
    lines = [b"retry: 2000", b"", b": a comment", b"", b'data: {"a": "b: c"}', b"", b"id:2", b"", b"id: 3"]
    expected = [{"retry": "2000"}, {"": "a comment"}, {"data": '{"a": "b: c"}'}, {"id": "2"}]
    assert list(parse_events(lines)) == expected
