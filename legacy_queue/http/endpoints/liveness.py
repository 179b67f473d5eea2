"""Endpoints with which others check that the server is alive."""

import time

from legacy_queue import __version__
from legacy_queue.http.endpoint import Call, Reply, endpoint

_started = time.monotonic()


@endpoint("GET", "/ping", "Ping Server", output="ping-response")
def ping(call: Call) -> Reply:
    """Check that the process is alive; it does not ask storage. ``uptime`` is in seconds."""
    call.authorize()
    return {"alive": True, "uptime": round(time.monotonic() - _started, 3)}


@endpoint("GET", "/__lbheartbeat__", "Load Balancer Heartbeat")
def lbheartbeat(call: Call) -> Reply:
    """Check that the process is alive, as ping does; it does not ask storage."""
    call.authorize()
    return {}


@endpoint("GET", "/__heartbeat__", "Heartbeat")
def heartbeat(call: Call) -> Reply:
    """Check that storage answers, as /ready does. If it does not, the answer is 503."""
    call.authorize().services.account.check()
    return {}


@endpoint("GET", "/__version__", "Version")
def version(call: Call) -> Reply:
    """Get the version of legacy-queue, in the form of Dockerflow. commit, source and build are empty."""
    call.authorize()
    return {"version": __version__, "commit": "", "source": "", "build": ""}
