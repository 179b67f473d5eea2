"""The parsers of HTTP that the tests run over: gunicorn's own, and the C parser where it is installed."""

from importlib.util import find_spec

# gunicorn's words for them; scripts/install compiles the second where there is a C compiler
PARSERS = ("python", "fast") if find_spec("gunicorn_h1c") else ("python",)
