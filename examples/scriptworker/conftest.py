"""Fixtures that run the unchanged polling code of scriptworker 3.1.2 on a test's queue and today's Python."""

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest
import scriptworker.poll
import scriptworker.task
import scriptworker.utils
from on_todays_python import Queue


@pytest.fixture
def run():
    """``run(coroutine)`` returns the result of the coroutine."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def new_context(legacy_queue, run):
    """``new_context("two")`` returns a scriptworker context, with what polling and reporting need."""
    sessions = []

    async def make(worker_id):
        session = aiohttp.ClientSession()
        sessions.append(session)
        names = {"provisioner_id": "scripts", "worker_type": "signing", "worker_group": "scripts"}

        def create_queue(credentials):
            return Queue(
                {"baseUrl": legacy_queue.base_url, "credentials": dict(credentials)}, session=session
            )

        return SimpleNamespace(
            config={**names, "worker_id": worker_id},
            session=session,
            create_queue=create_queue,
            queue=create_queue(legacy_queue.credentials),
            poll_task_urls=None,
        )

    yield lambda worker_id="one": run(make(worker_id))
    for session in sessions:
        run(session.close())


@pytest.fixture
def poll(run):
    """``poll(context)`` returns the answer of claimTask, or None. ``worker.run_loop`` begins with this."""

    async def loop(context):
        pool = context.config["provisioner_id"], context.config["worker_type"]
        await scriptworker.poll.update_poll_task_urls(context, context.queue.pollTaskUrls, args=pool)
        for poll_url, delete_url in scriptworker.poll.get_azure_urls(context):
            request = scriptworker.utils.retry_request
            claim = await scriptworker.poll.find_task(context, poll_url, delete_url, request)
            if claim:
                context.claim_task = claim
                context.temp_queue = context.create_queue(claim["credentials"])
                return claim
        return None

    return lambda context: run(loop(context))


@pytest.fixture
def report(run):
    """``report(context, exit_code)`` reports how the script ended. ``worker.run_loop`` ends with this."""
    return lambda context, exit_code: run(scriptworker.task.complete_task(context, exit_code))


@pytest.fixture
def create_task(legacy_queue):
    """``create_task()`` creates a task for the workers of ``new_context`` and returns its id."""
    return lambda: legacy_queue.create_task(provisioner_id="scripts", worker_type="signing")
