"""Explains why npm or pip could not install, from its output.

scripts/setup.sh runs this before anything is installed: it imports only the standard library.
"""

import re
import sys
from pathlib import Path

_OF_NPM = re.compile(
    r"^npm (?:error|ERR!) (?!(?:code|errno|syscall|path|dest|A complete log) |\w+: '|[{} ])(\S.*?)\.?$",
    re.MULTILINE,
)
_OF_PIP = re.compile(r"^\s*ERROR: (?!ResolutionImpossible)(.+?)\.?$", re.MULTILINE)
_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT"
    r"|Temporary failure in name resolution|Name or service not known|Connection refused"
    r"|Network is unreachable|No route to host|timed out|Failed to establish a new connection"
)
_HOST = re.compile(
    r"(?:Looking in indexes: |request to )https?://(?:[^/\s@]*@)?([^/\s,]+)"  # without a password
    r"|(?:Failed to resolve |host=)'([^']+)'"
)


def explain(output: str) -> str:
    """The last cause in the output of npm or pip, a sentence without its full stop.

    A missing network is explained with the host that was not reached and a remedy.
    """
    causes = _OF_NPM.findall(output)[:1] or _OF_PIP.findall(output)[-1:]
    # without a network, pip's last error is that it found nothing, or that the pins conflict
    where = output if "Retry(total=0" in output else "".join(causes)
    if network := _NETWORK.search(where):
        host = _HOST.search(output)
        name = host[1] or host[2] if host else "the package index"
        return (
            f"{name} cannot be reached ({network[0]}): connect this machine to the network, "
            "or set HTTPS_PROXY to a proxy, and try again"
        )
    return (causes or output.strip().splitlines()[-1:] or ["it said nothing"])[0]


if __name__ == "__main__":
    print(explain(Path(sys.argv[1]).read_text(errors="replace")))  # noqa: T201
