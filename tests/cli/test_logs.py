"""What a server says on standard error is JSON, also where a library speaks."""

import subprocess
import sys

OVERFLOW = """
import urllib3
from legacy_queue.cli.logs import log_to_standard_error

log_to_standard_error()
with urllib3.HTTPConnectionPool("127.0.0.1", 1, maxsize=1) as pool:
    for connection in [pool._new_conn(), pool._new_conn()]:
        pool._put_conn(connection)
"""


def test_a_connection_that_is_not_kept_is_a_line_of_the_log() -> None:
    ended = subprocess.run([sys.executable, "-c", OVERFLOW], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
