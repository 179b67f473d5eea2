"""While a process parses a large body, it serves other requests."""

import subprocess
import sys

import gevent
import gevent.socket
import pytest

from legacy_queue.server.gevent_waiter import GeventWaiter


def test_between_two_steps_of_a_long_task_other_connections_are_read() -> None:
    """gevent's own ``sleep(0)`` returns 50 times before gevent looks at connections."""
    ours, theirs = gevent.socket.socketpair()
    with ours, theirs:
        received = gevent.spawn(theirs.recv, 1)
        gevent.sleep(0)
        ours.send(b"x")
        for _ in range(3):
            GeventWaiter().sleep(0)
        assert received.ready()


SCRIPT = """
from gevent import monkey
monkey.patch_all()
import gevent
from datetime import timedelta
from flask import Flask
from legacy_queue.gateway.azure_blob_api import azure_blob_api
from legacy_queue.server.gevent_waiter import GeventWaiter
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from tests.http.calls import NOW, TASK_ID, Queue
from tests.memory_server import FakeClock, NoFaults, Unrecorded, memory_storage

def during(call):
    done = []
    other = gevent.spawn(lambda: done.append("another request"))
    assert call().status_code == 400
    done.append("this request")
    other.join()
    return done

queue = Queue(waiter=GeventWaiter())
body = b'{"payload": [' + b"{}," * 20_000 + b"{}]}"
print(during(lambda: queue.send("PUT", f"/v1/task/{TASK_ID}", body)))

clock = FakeClock(NOW)
storage = memory_storage(clock)
app = Flask("gateway")
api = azure_blob_api(storage.account, clock, GeventWaiter(), UploadSlots(), NoFaults(), Unrecorded)
app.register_blueprint(api, url_prefix="/azure")
url = storage.blobs.upload_url("name", NOW + timedelta(hours=1)) + "&comp=blocklist"
blocks = b"<BlockList>" + b"<Latest>YQ==</Latest>" * 20_000
print(during(lambda: app.test_client().put(url, data=blocks)))
"""


@pytest.mark.processes
def test_another_request_is_answered_while_a_large_body_is_parsed() -> None:
    shown = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["['another request', 'this request']"] * 2
