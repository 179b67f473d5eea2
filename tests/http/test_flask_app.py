"""Routes that are compiled once for all applications of a process."""

from tests.http.calls import Queue, succeeded


def test_two_servers_with_different_queue_prefixes_serve_their_own_blobs() -> None:
    for queue in (Queue(queue_prefix="one"), Queue(queue_prefix="other")):
        task_id = queue.running()
        answer = succeeded(queue.artifact(task_id, "public/log", "azure")).get_json()
        assert f"/{queue.settings.queue_prefix}-artifacts/" in answer["putUrl"]
        put = queue.upload(answer["putUrl"], b"a log", x_ms_blob_type="BlockBlob")
        assert put.status_code == 201
