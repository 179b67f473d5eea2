import json

from legacy_queue.domain.json_bytes import to_json


def test_a_value_that_orjson_refuses_is_written_by_pythons_json() -> None:
    for value in ({"half a pair": "\ud800", "a": "é"}, {"more than 64 bits": 2**70, "a": [None, 1.5]}):
        assert json.loads(to_json(value)) == value
        assert to_json(value, is_sorted=True).startswith(b'{"a":')
