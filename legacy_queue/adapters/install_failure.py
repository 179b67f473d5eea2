"""Why npm or pip could not install, from all that it said.

scripts/setup.sh asks when nothing is installed yet: this imports the standard library alone.
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


def explain(said: str) -> str:
    """The last cause of a failed npm or pip, a sentence without its full stop.

    A network that is missing is named as that, with the host that was not reached and what to do.
    """
    causes = _OF_NPM.findall(said)[:1] or _OF_PIP.findall(said)[-1:]
    # where pip reaches nothing it says at last that it found nothing, or that the pins are in conflict
    where = said if "Retry(total=0" in said else "".join(causes)
    if network := _NETWORK.search(where):
        host = _HOST.search(said)
        name = host[1] or host[2] if host else "the package index"
        return (
            f"{name} cannot be reached ({network[0]}): connect this machine to the network, "
            "or set HTTPS_PROXY to a proxy, and try again"
        )
    return (causes or said.strip().splitlines()[-1:] or ["it said nothing"])[0]


if __name__ == "__main__":
    print(explain(Path(sys.argv[1]).read_text(errors="replace")))  # noqa: T201
