"""Replacing the application behind the CurrentApp that the server calls."""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from werkzeug.test import EnvironBuilder, run_wsgi_app

from legacy_queue.http.current_app import CurrentApp
from legacy_queue.http.request_log import WsgiApp

Act = Callable[[], object]


def app(answer: bytes) -> WsgiApp:
    """An application that does what a request asks it to do, then answers."""

    def serve(environ: Any, start_response: Any) -> Iterable[bytes]:
        environ["act"]()
        start_response("200 OK", [])
        return [answer]

    return serve


def nothing() -> None:
    """Nothing has to be ended."""


def ask(current: CurrentApp, act: Act = nothing) -> bytes:
    environ = {**EnvironBuilder().get_environ(), "act": act}
    chunks, _, _ = run_wsgi_app(current, environ, buffered=True)
    return b"".join(chunks)


def replace(current: CurrentApp, make: Callable[[], WsgiApp], end: Callable[[], None] = nothing) -> bytes:
    """Let a request replace the application."""
    return ask(current, lambda: current.replace(end, make))


def test_requests_go_to_the_new_application_after_it_was_replaced() -> None:
    current = CurrentApp(app(b"old"))
    assert ask(current) == b"old"
    assert replace(current, lambda: app(b"new")) == b"old"
    assert ask(current) == b"new"


def test_requests_under_way_end_before_the_new_application_is_made() -> None:
    entered, ends = threading.Event(), threading.Event()
    seen = []
    current = CurrentApp(app(b"old"), timedelta(seconds=30))

    def wait() -> None:
        entered.set()
        ends.wait(30)
        seen.append("ended")

    def make() -> WsgiApp:
        seen.append("made")
        return app(b"new")

    request = threading.Thread(target=ask, args=[current, wait])
    request.start()
    assert entered.wait(30)
    replace(current, make, ends.set)
    request.join(30)
    assert seen == ["ended", "made"]


def test_a_request_during_the_replacement_waits_for_the_new_application() -> None:
    current, answers = CurrentApp(app(b"old")), []
    request = threading.Thread(target=lambda: answers.append(ask(current)))

    def make() -> WsgiApp:
        request.start()
        return app(b"new")

    replace(current, make)
    request.join(30)
    assert answers == [b"new"]
