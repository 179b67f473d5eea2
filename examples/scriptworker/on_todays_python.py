"""Puts back what Python and aiohttp have removed since 2017. Import this before scriptworker 3.1.2."""

import asyncio
import base64
import importlib
import importlib.util
import sys
import warnings
from pathlib import Path

import aiohttp
import arrow
import async_timeout

base64.encodestring = base64.encodebytes
aiohttp.Timeout = async_timeout.timeout

_wait = asyncio.wait
asyncio.wait = lambda coroutines, **options: _wait(map(asyncio.ensure_future, coroutines), **options)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    Queue = importlib.import_module("taskcluster.async").Queue

# `async` is a keyword now, so this import in scriptworker's source is a syntax error: take it out
_spec = importlib.util.find_spec("scriptworker.context")
_source = Path(_spec.origin).read_text().replace("from taskcluster.async import Queue", "")
_context = sys.modules["scriptworker.context"] = importlib.util.module_from_spec(_spec)
exec(compile(_source, _spec.origin, "exec"), _context.__dict__)
Context = _context.Context

artifacts = importlib.import_module("scriptworker.artifacts")
artifacts.get_expiration_arrow = lambda context: arrow.utcnow().shift(
    hours=context.config["artifact_expiration_hours"]
)
