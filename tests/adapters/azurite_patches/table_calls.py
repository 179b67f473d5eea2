"""What the table service is asked: each operation in its usual forms, and what is wrong with one."""

import json
from collections.abc import Mapping, Sequence

from legacy_queue.adapters.azurite import ACCOUNT
from tests.adapters.azurite_patches.wire import FULL, HOST, JSON, Answer, Wire, quoted

BATCH = "batch_11111111-2222-3333-4444-555555555555"
_CHANGES = "changeset_66666666-7777-8888-9999-000000000000"


def entity(partition: str, row: str, **properties: object) -> str:
    return json.dumps({"PartitionKey": partition, "RowKey": row, **properties})


def keys(table: str, partition: str, row: str) -> str:
    written = (quoted(key.replace("'", "''")) for key in (partition, row))
    return "/{}(PartitionKey='{}',RowKey='{}')".format(table, *written)


def create(az: Wire, table: str) -> Answer:
    return az.table("POST", "/Tables", "", json.dumps({"TableName": table}))


def tables(az: Wire) -> None:
    for name in ("tabs", "tabs", "TABS", "ab", "1abc", "a-b", "a" * 64, "tables", "Tables", ""):
        create(az, name)
        az.table("GET", f"/{name}()")
        az.table("GET", f"/{name}")
        az.table("POST", f"/{name}", "", entity("p", "r"))
        az.table("GET", keys(name, "p", "r"))
    az.table("GET", "/Tables")
    az.table("GET", "/Tables()", f"$filter={quoted('''TableName eq 'tabs' ''')}")
    az.table("GET", "/Tables('tabs')")
    az.table("GET", "/tabs", "comp=acl")
    az.table("GET", "/", "restype=service&comp=properties")
    az.table("DELETE", "/Tables('tabs')")
    az.table("DELETE", "/Tables('tabs')")
    az.table("POST", "/tabs", "", entity("p", "r"))
    az.table("GET", "/tabs()")


def properties(az: Wire) -> None:
    create(az, "properties")
    every = {
        "s": "text ü 😀", "empty": "", "n": 1, "f": 1.5, "e": 1e300, "t": True, "none": None,
        "big": "9007199254740993", "big@odata.type": "Edm.Int64",
        "when": "2026-01-02T03:04:05.1234567Z", "when@odata.type": "Edm.DateTime",
        "bytes": "AAEC", "bytes@odata.type": "Edm.Binary",
        "id": "c9da6455-213d-42c9-9a79-3e9149a57833", "id@odata.type": "Edm.Guid",
        "d": 1, "d@odata.type": "Edm.Double", "text@odata.type": "Edm.String", "text": "x",
    }  # fmt: skip
    az.table("POST", "/properties", "", entity("p", "all", **every))
    for accept in (
        JSON,
        FULL,
        "application/json;odata=nometadata",
        "application/json",
        "*/*",
        "application/atom+xml",
        None,
    ):
        az.table("GET", keys("properties", "p", "all"), headers={"Accept": accept})
        az.table("GET", "/properties()", headers={"Accept": accept})
        az.table(
            "POST",
            "/properties",
            "",
            entity("p", f"accept {accept}"[:20].replace("/", " ")),
            headers={"Accept": accept},
        )
    for name, value in (
        ("n", "text"), ("list", [1, 2]), ("object", {"a": 1}), ("s", "x" * 32768), ("s", "x" * 32769),
        ("PartitionKey", 5), ("PartitionKey", None), ("RowKey", None), ("RowKey", "a/b"), ("RowKey", "a#b?"),
        ("RowKey", "\t"), ("RowKey", "it's"), ("RowKey", "''"), ("RowKey", ""), ("RowKey", "ü 中"),
        ("RowKey", "x" * 513), ("odata.etag", "x"), ("Timestamp", "2020-01-01T00:00:00Z"),
        ("when@odata.type", "Edm.Wrong"), ("123", 1), ("__proto__", 1),
    ):  # fmt: skip
        body = {"PartitionKey": "odd", "RowKey": f"row {name}", name: value}
        az.table("POST", "/properties", "", json.dumps(body))
        if isinstance(body["RowKey"], str):
            az.table("PUT", keys("properties", "odd", body["RowKey"]), "", json.dumps(body))
            az.table("PATCH", keys("properties", "odd", body["RowKey"]), "", json.dumps(body))
            az.table("GET", keys("properties", "odd", body["RowKey"]), headers={"Accept": FULL})
    for wrong in (
        {"when": "no date", "when@odata.type": "Edm.DateTime"},
        {"when": "", "when@odata.type": "Edm.DateTime"},
    ):
        az.table("POST", "/properties", "", entity("odd", "typed", **wrong))
        az.table("PUT", keys("properties", "odd", "typed"), "", entity("odd", "typed", **wrong))
    az.table("POST", "/properties", "", entity("large", "row", **{f"p{n}": "x" * 32768 for n in range(40)}))
    az.table(
        "PUT",
        keys("properties", "large", "row"),
        "",
        entity("large", "row", **{f"p{n}": "x" * 32768 for n in range(40)}),
    )
    az.table("GET", "/properties()", headers={"Accept": FULL})


def bodies(az: Wire) -> None:
    create(az, "bodies")
    for body in (
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "5",
        "{}",
        '{"PartitionKey":"p"}',
        '{"RowKey":"r"}',
        "<xml/>",
        b"\xff",
    ):
        az.table("POST", "/bodies", "", body)
        az.table("PUT", keys("bodies", "p", "r"), "", body)
        az.table("PATCH", keys("bodies", "p", "r"), "", body)
        az.table("MERGE", keys("bodies", "p", "r"), "", body)
    types = (
        "application/json;odata=nometadata",
        "text/json",
        "Application/JSON",
        "application/json2",
        "application/xml",
        "",
        None,
    )
    for number, given in enumerate(types):
        az.table("POST", "/bodies", "", entity("types", str(number)), headers={"Content-Type": given})
        az.table(
            "PUT", keys("bodies", "types", "put"), "", entity("types", "put"), headers={"Content-Type": given}
        )
    for number, prefer in enumerate(
        ("return-content", "return-no-content", "Return-Content", "odd", "", None)
    ):
        az.table("POST", "/bodies", "", entity("prefer", str(number)), headers={"Prefer": prefer})
    for query in ("$format=json", "timeout=5", "timeout=x", "$top=1", "$select=a", "comp=acl", "x=1"):
        az.table("POST", "/bodies", query, entity("query", quoted(query)))
        az.table("GET", keys("bodies", "query", quoted(query)), query)
        az.table("PATCH", keys("bodies", "query", "patched"), query, entity("query", "patched", q=query))
    az.table("POST", "/bodies", "", entity("p", "named"), headers={"x-ms-client-request-id": "my-id"})
    az.table("POST", "/bodies", "", entity("p", "named"), headers={"x-ms-client-request-id": "my-id"})
    az.table("GET", "/bodies()")


def conditions(az: Wire) -> None:
    create(az, "conditions")
    first = az.table("POST", "/conditions", "", entity("p", "r", n=1)).header("etag")
    az.table("POST", "/conditions", "", entity("p", "r", n=2))
    second = az.table(
        "PUT", keys("conditions", "p", "r"), "", entity("p", "r", n=2), headers={"If-Match": first}
    ).header("etag")
    wrong = ('W/"wrong"', '"strong"', "bare", "", "*x", second.replace("%3A", ":"), first)
    match: str | None
    for match in wrong:
        for method in ("PUT", "PATCH", "MERGE", "DELETE"):
            body = "" if method == "DELETE" else entity("p", "r", m=method)
            az.table(method, keys("conditions", "p", "r"), "", body, headers={"If-Match": match})
    for method in ("PUT", "PATCH", "MERGE"):
        for match in ("*", None, first):
            az.table(
                method,
                keys("conditions", "p", f"new {method}"),
                "",
                entity("p", f"new {method}", n=1),
                headers={"If-Match": match},
            )
            az.table(
                method,
                keys("conditions", "other", "x"),
                "",
                entity("p", "r", n=1),
                headers={"If-Match": match},
            )
    az.table("DELETE", keys("conditions", "p", "r"))
    az.table("DELETE", keys("conditions", "p", "r"), headers={"If-Match": "*"})
    az.table("DELETE", keys("conditions", "p", "r"), headers={"If-Match": "*"})
    for method in ("GET", "PUT", "PATCH", "MERGE", "DELETE", "POST", "HEAD", "OPTIONS"):
        body = entity("p", "r") if method in ("PUT", "PATCH", "MERGE", "POST") else ""
        odd = ("x", "PartitionKey='p'", "RowKey='r',PartitionKey='p'", "PartitionKey='p',%20RowKey='r'")
        paths = (keys("conditions", "p", "gone"), keys("notthere", "p", "r"), "/conditions()/x")
        for path in (*paths, *(f"/conditions({key})" for key in odd)):
            az.table(method, path, "", body, headers={"If-Match": "*"})
    az.table(
        "POST",
        keys("conditions", "p", "new PUT"),
        "",
        entity("p", "new PUT", k=1),
        headers={"X-HTTP-Method": "MERGE"},
    )
    for key in ("it's", "''", "a,b", "', RowKey='", "ü", "a b", "a+b", "100%", "(x)", "$batch"):
        az.table("POST", "/conditions", "", entity(key, key))
        az.table("GET", keys("conditions", key, key))
        az.table("PATCH", keys("conditions", key, key), "", entity(key, key, n=1), headers={"If-Match": "*"})
        az.table("GET", "/conditions()", f"$filter={quoted('PartitionKey eq ' + literal(key))}")
        az.table("DELETE", keys("conditions", key, key), headers={"If-Match": "*"})
    az.table("GET", "/conditions()", headers={"Accept": FULL})


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


Change = tuple[str, str, str, Mapping[str, str | None]]  # method, path, body, headers


def batch(az: Wire, changes: Sequence[Change], headers: Mapping[str, str | None] | None = None) -> Answer:
    parts = [
        f"--{_CHANGES}\r\nContent-Type: application/http\r\n"
        f"Content-Transfer-Encoding: binary\r\nContent-ID: {number}\r\n\r\n"
        f"{method} http://{HOST}/{ACCOUNT}{path} HTTP/1.1\r\n"
        + "".join(
            f"{name}: {value}\r\n"
            for name, value in ({"Accept": JSON, "Content-Type": "application/json"} | dict(more)).items()
        )
        + f"\r\n{body}\r\n"
        for number, (method, path, body, more) in enumerate(changes)
    ]
    written = "".join(parts) + f"--{_CHANGES}--\r\n"
    content = (
        f"--{BATCH}\r\nContent-Type: multipart/mixed; boundary={_CHANGES}\r\n\r\n{written}--{BATCH}--\r\n"
    )
    kind: Mapping[str, str | None] = {"Content-Type": f"multipart/mixed; boundary={BATCH}"}
    return az.table("POST", "/$batch", "", content, headers=headers or kind)


def batches(az: Wire) -> None:
    create(az, "batches")

    def post(row: str, partition: str = "p", **more: object) -> Change:
        return "POST", "/batches", entity(partition, row, **more), {}

    def row(key: str) -> str:
        return keys("batches", "p", key)

    star = {"If-Match": "*"}
    batch(az, [post("1")])
    batch(az, [post("2", n=1), post("3", n=2)])
    batch(az, [post("4"), post("1"), post("5")])
    batch(az, [post("6"), post("6")])
    batch(az, [post("7"), post("7", "q")])
    batch(
        az, [("PATCH", row("2"), entity("p", "2", m=1), star), ("PUT", row("3"), entity("p", "3", m=1), star)]
    )
    batch(az, [("MERGE", row("2"), entity("p", "2", k=1), star), ("DELETE", row("3"), "", star)])
    batch(az, [post("8"), ("PATCH", row("2"), entity("p", "2", lost=1), {"If-Match": 'W/"wrong"'})])
    batch(az, [("PATCH", row("2"), entity("p", "2", lost=1), star), ("DELETE", row("none"), "", star)])
    batch(
        az,
        [
            ("PUT", row("upsert"), entity("p", "upsert"), {}),
            ("PATCH", row("merged"), entity("p", "merged"), {}),
        ],
    )
    batch(az, [("GET", row("2"), "", {})])
    batch(az, [("POST", "/notthere", entity("p", "1"), {})])
    batch(az, [post("it's"), post("ü")])
    batch(az, [post("', RowKey='")])
    batch(az, [("DELETE", keys("batches", "p", "it's"), "", star)])
    batch(az, [post(f"many {n:03}") for n in range(100)])
    batch(az, [post(f"too many {n:03}") for n in range(101)])
    batch(az, [post("large", s="x" * 32769)])
    batch(
        az,
        [post("prefer")],
        headers={"Content-Type": f"multipart/mixed; boundary={BATCH}", "Prefer": "return-no-content"},
    )
    batch(az, [post("typed")], headers={"Content-Type": "application/json"})
    batch(az, [post("typed 2")], headers={"Content-Type": None})
    batch(
        az,
        [post("named")],
        headers={"Content-Type": f"multipart/mixed; boundary={BATCH}", "x-ms-client-request-id": "my-id"},
    )
    multipart = {"Content-Type": f"multipart/mixed; boundary={BATCH}"}
    for body in ("", "text", f"--{BATCH}--\r\n", f"--{BATCH}\r\n\r\n--{BATCH}--\r\n", "{}"):
        az.table("POST", "/$batch", "", body, headers=multipart)
    for method in ("GET", "PUT", "DELETE"):
        az.table(method, "/$batch", "", "x", headers=multipart)
    az.table("POST", "/$batch", "$top=1", "x", headers=multipart)
    az.table("GET", "/batches()", headers={"Accept": FULL})
