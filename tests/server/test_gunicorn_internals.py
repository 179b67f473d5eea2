"""This package uses internals of some gunicorn modules. If their source changes, these tests fail."""

import hashlib
import inspect
from types import ModuleType

import pytest
from gunicorn import arbiter
from gunicorn.http import body, message, parser, unreader, wsgi
from gunicorn.workers import base, base_async, ggevent

# The first digits of the hash of each module. If a test fails, read what gunicorn has changed, check that our
# code still works with it, and record the new hash.
RECORDED: dict[ModuleType, str] = {
    arbiter: "52f69bfc279f",
    base: "9a39e0e16d62",
    base_async: "51385978b8ab",
    ggevent: "cd87ea3e9ec9",
    body: "c46c000fc93b",
    message: "408e5f03f303",
    parser: "618c7c5a2297",
    unreader: "a28537df77eb",
    wsgi: "2b8be67bf98b",
}


@pytest.mark.parametrize("module", RECORDED, ids=lambda module: module.__name__)
def test_the_source_of_each_used_gunicorn_module_is_unchanged(module: ModuleType) -> None:
    assert hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:12] == RECORDED[module]
