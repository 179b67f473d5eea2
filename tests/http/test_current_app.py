"""Replacing the application behind the one that the server calls."""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from werkzeug.test import EnvironBuilder, run_wsgi_app

from legacy_queue.http.current_app import CurrentApp
from legacy_queue.http.request_log import WsgiApp

Act = Callable[[], object]


def app(answer: bytes) -> WsgiApp:
    """It does what a request asks it to do, and answers then."""

    def serve(environ: Any, start_response: Any) -> Iterable[bytes]:
        environ["act"]()
        start_response("200 OK", [])
        return [answer]

    return serve


def nothing() -> None:
    """Nothing waits that would have to end."""


def ask(current: CurrentApp, act: Act = nothing) -> bytes:
    environ = {**EnvironBuilder().get_environ(), "act": act}
    chunks, _, _ = run_wsgi_app(current, environ, buffered=True)
    return b"".join(chunks)


def replace(current: CurrentApp, make: Callable[[], WsgiApp], end: Act = nothing) -> bytes:
    """By a request."""
    return ask(current, lambda: current.replace(end, make))


def asking(current: CurrentApp, act: Act) -> threading.Thread:
    """A request that is under way."""
    entered = threading.Event()

    def enter() -> None:
        entered.set()
        act()

    thread = threading.Thread(target=ask, args=[current, enter])
    thread.start()
    assert entered.wait(30)
    return thread


def fail() -> WsgiApp:
    raise ValueError("a defect")


def test_requests_go_to_the_new_application_behind_the_one_that_replaced_it() -> None:
    current = CurrentApp(app(b"old"))
    assert ask(current) == b"old"
    assert replace(current, lambda: app(b"new")) == b"old"
    assert ask(current) == b"new"


def test_requests_under_way_end_before_the_new_application_is_made() -> None:
    ends, seen = threading.Event(), []
    current = CurrentApp(app(b"old"), timedelta(seconds=30))
    request = asking(current, lambda: (ends.wait(30), seen.append("ended")))

    def make() -> WsgiApp:
        seen.append("made")
        return app(b"new")

    replace(current, make, ends.set)
    request.join(30)
    assert seen == ["ended", "made"]


def test_requests_that_do_not_end_are_left_behind() -> None:
    ends, current = threading.Event(), CurrentApp(app(b"old"), timedelta(0))
    request = asking(current, lambda: ends.wait(30))
    with capture_logs() as logs:
        replace(current, lambda: app(b"new"))
    assert ask(current) == b"new"
    ends.set()
    request.join(30)
    assert [(one["event"], one["count"]) for one in logs] == [("requests-not-finished", 1)]


def test_requests_that_come_meanwhile_wait_for_the_new_application() -> None:
    current, answers = CurrentApp(app(b"old")), []
    request = threading.Thread(target=lambda: answers.append(ask(current)))

    def make() -> WsgiApp:
        request.start()
        return app(b"new")

    replace(current, make)
    request.join(30)
    assert answers == [b"new"]


def test_two_that_replace_it_at_once_follow_one_another() -> None:
    current, begun, made = CurrentApp(app(b"old"), timedelta(seconds=30)), threading.Event(), []

    def make(name: bytes) -> WsgiApp:
        made.append(name)
        return app(name)

    def second() -> None:
        begun.wait(30)
        current.replace(nothing, lambda: make(b"2"))

    threads = [
        asking(current, second),
        asking(current, lambda: current.replace(begun.set, lambda: make(b"1"))),
    ]
    for thread in threads:
        thread.join(30)
    assert made == [b"1", b"2"]
    assert ask(current) == b"2"


def test_where_no_new_application_can_be_made_the_old_one_stays() -> None:
    current = CurrentApp(app(b"old"))
    with pytest.raises(ValueError, match="a defect"):
        replace(current, fail)
    assert ask(current) == b"old"


def test_a_request_that_failed_is_not_waited_for() -> None:
    current = CurrentApp(app(b"old"), timedelta(seconds=30))
    with pytest.raises(ValueError, match="a defect"):
        ask(current, fail)
    with capture_logs() as logs:
        replace(current, lambda: app(b"new"))
    assert logs == []
