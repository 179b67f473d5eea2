"""The shortened output of npm 11 and pip 23 and 26, and the cause that is explained to the user."""

import pytest

from legacy_queue.adapters.install_failure import explain

CURE = "connect this machine to the network, or set HTTPS_PROXY to a proxy, and try again"

REFUSED = """\
npm error code ECONNREFUSED
npm error syscall connect
npm error errno ECONNREFUSED
npm error FetchError: request to http://user:s3cret@127.0.0.1:9/x failed, reason: connect ECONNREFUSED
npm error     at ClientRequest.<anonymous> (/usr/lib/node_modules/npm/lib/index.js:130:14)
npm error   code: 'ECONNREFUSED',
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-22T07_15_49_349Z-debug-0.log
"""
NO_NAME = """\
npm error code EAI_AGAIN
npm error syscall getaddrinfo
npm error network request to https://registry.example.com/x failed, reason: getaddrinfo EAI_AGAIN
npm error network This is a problem related to network connectivity.
"""
BAD_LOCK = """\
npm warn Unknown user config "nodedir". This will stop working in the next major version of npm.
npm error code EUSAGE
npm error
npm error `npm ci` can only install packages when your package.json and package-lock.json are in sync.
npm error
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-22T07_15_49_349Z-debug-0.log
"""
FULL = """\
npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write
npm error code ENOSPC
npm error syscall write
npm error errno -28
npm error nospc ENOSPC: no space left on device, write
npm error nospc There appears to be insufficient space on your system to finish.
"""
PIP_REFUSED = """\
Looking in indexes: http://user:s3cret@127.0.0.1:9/
  error: subprocess-exited-with-error
      WARNING: Retrying (Retry(total=0)) after connection broken by \
'NewConnectionError('<...>: Failed to establish a new connection: [Errno 111] refused')': /setuptools/
      ERROR: Could not find a version that satisfies the requirement setuptools>=77 (from versions: none)
      ERROR: No matching distribution found for setuptools>=77
      [end of output]
error: subprocess-exited-with-error
note: This error originates from a subprocess, and is likely not a problem with pip.
"""
PIP_NO_NAME = """\
WARNING: Retrying (Retry(total=0)) after connection broken by \
'NameResolutionError("HTTPSConnection(host='index.example.com'): Failed to resolve 'index.example.com' \
([Errno -3] Temporary failure in name resolution)")': /simple/boto3/
ERROR: Could not find a version that satisfies the requirement boto3 (from versions: none)
ERROR: No matching distribution found for boto3
"""
PIP_FOUND_NOTHING = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'ReadTimeoutError("timed out")': /setuptools/
ERROR: Cannot install setuptools>=77 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit the documentation
"""
PIP_CONFLICT = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError("timed out")': /simple/
ERROR: Cannot install flask<3 and werkzeug>=3 because these versions conflict.
ERROR: ResolutionImpossible: for help visit the documentation
"""
PIP_UNKNOWN = """\
ERROR: Could not find a version that satisfies the requirement flask>=99 (from versions: 3.0.0, 3.1.3)
ERROR: No matching distribution found for flask>=99
"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (REFUSED, f"127.0.0.1:9 cannot be reached (ECONNREFUSED): {CURE}"),
        (NO_NAME, f"registry.example.com cannot be reached (EAI_AGAIN): {CURE}"),
        (PIP_REFUSED, f"127.0.0.1:9 cannot be reached (Failed to establish a new connection): {CURE}"),
        (PIP_FOUND_NOTHING, f"the package index cannot be reached (timed out): {CURE}"),
        (PIP_NO_NAME, f"index.example.com cannot be reached (Temporary failure in name resolution): {CURE}"),
    ],
)
def test_a_missing_network_is_explained_with_the_host_and_the_cure_and_no_password(
    said: str, cause: str
) -> None:
    assert explain(said) == cause


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            BAD_LOCK,
            "`npm ci` can only install packages when your package.json and package-lock.json are in sync",
        ),
        (FULL, "nospc ENOSPC: no space left on device, write"),
        (
            PIP_CONFLICT,
            "Cannot install flask<3 and werkzeug>=3 because these versions conflict",
        ),
        (PIP_UNKNOWN, "No matching distribution found for flask>=99"),
        ("one\nSegmentation fault\n", "Segmentation fault"),
        ("", "it said nothing"),
    ],
)
def test_the_last_cause_is_explained_without_the_text_around_it(said: str, cause: str) -> None:
    assert explain(said) == cause
