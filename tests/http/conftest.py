import pytest

from tests.http.calls import Queue


@pytest.fixture
def queue() -> Queue:
    return Queue()
