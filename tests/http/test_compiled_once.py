"""Applications of one process share the rules of their routes, and nothing else of them."""

from tests.http.calls import Queue, succeeded


def where(queue: Queue, path: str) -> str:
    return str(queue.server.app.url_map.bind("queue.test").match(path, "GET")[0])


def test_a_second_application_has_the_compiled_routes_of_the_first() -> None:
    first, second = (Queue().server.app.url_map.iter_rules() for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one is other


def test_an_application_has_its_own_routes_beside_one_with_other_settings() -> None:
    queues = {prefix: Queue(queue_prefix=prefix) for prefix in ("one", "other")}
    for prefix, queue in queues.items():
        found = {name: where(queue, f"/azure/memorystore1/{name}-artifacts/x") for name in queues}
        assert found == {name: f"{'blob' if name == prefix else 'azure'}_face.serve" for name in queues}
        succeeded(queue.send("GET", "/ready"))
