"""Endpoints by which others see that the server is alive."""

import time

from legacy_queue import __version__
from legacy_queue.http.endpoint import Call, Reply, endpoint

_started = time.monotonic()


@endpoint("GET", "/ping", "Ping Server", output="ping-response")
def ping(call: Call) -> Reply:
    """Answer without asking storage: the process is alive. ``uptime`` is in seconds."""
    call.authorize()
    return {"alive": True, "uptime": round(time.monotonic() - _started, 3)}


@endpoint("GET", "/__lbheartbeat__", "Load Balancer Heartbeat")
def lbheartbeat(call: Call) -> Reply:
    """Answer without asking storage, as ping does."""
    call.authorize()
    return {}


@endpoint("GET", "/__heartbeat__", "Heartbeat")
def heartbeat(call: Call) -> Reply:
    """Answer once storage has answered, as /ready does; 503 while storage is away."""
    call.authorize().services.account.check()
    return {}


@endpoint("GET", "/__version__", "Version")
def version(call: Call) -> Reply:
    """The version of legacy-queue, in the form of Dockerflow: commit, source and build are empty."""
    call.authorize()
    return {"version": __version__, "commit": "", "source": "", "build": ""}
