"""Queries of a table: filters, of which the code uses a few, parameters and pages."""

from tests.adapters.azurite_patches.table_calls import Change, batch, create, entity
from tests.adapters.azurite_patches.wire import FULL, Wire, quoted

FILTERS = """\
true
false
PartitionKey eq 'a'
PartitionKey eq 'none'
(PartitionKey eq 'a')
PartitionKey eq 'it''s'
PartitionKey eq 'a' and RowKey ge 'r2'
PartitionKey eq 'a' and RowKey ge 'r1' and RowKey lt 'r3'
(PartitionKey eq 'a') and (RowKey eq 'r2')
((PartitionKey eq 'a' and n gt 2))
RowKey eq 'r2' and PartitionKey eq 'a'
PartitionKey eq 'a' or PartitionKey eq 'b'
PartitionKey eq 'a' and n eq 1 or PartitionKey eq 'b'
PartitionKey eq 'a' and (n eq 1 or n eq 3)
(PartitionKey eq 'a' or n eq 1) and t eq true
not (PartitionKey eq 'a')
not PartitionKey eq 'a'
PartitionKey eq 'a' and not (n eq 1)
PartitionKey eq 'or'
PartitionKey eq 'or' and s eq 'not'
partitionkey eq 'a'
PARTITIONKEY eq 'a'
PartitionKey EQ 'a'
PartitionKey eq 'a' AND n eq 1
'a' eq PartitionKey
PartitionKey eq PartitionKey
PartitionKey eq 5
PartitionKey eq null
PartitionKey ne 'a'
PartitionKey ge 'a' and PartitionKey lt 'b'
PartitionKey eq 'a' and when gt datetime'2025-01-01T00:00:00Z'
when gt datetime'2025-01-01T00:00:00Z'
PartitionKey eq 'a' and Timestamp gt datetime'2025-01-01T00:00:00Z'
Timestamp gt datetime'bad'
PartitionKey eq 'a' and id eq guid'c9da6455-213d-42c9-9a79-3e9149a57833'
PartitionKey eq 'a' and n eq 1L
PartitionKey eq 'a'or n eq 1
PartitionKey eq 'a' and n eq 1or n eq 2
PartitionKey eq 'a
PartitionKey eq
PartitionKey
(PartitionKey eq 'a'
PartitionKey eq 'a')
PartitionKey eq 'a' and
and
x eq ]=1
PartitionKey eq 'a' and nothing eq 'x'
PartitionKey eq 'a' and nothing ne 'x'
(PartitionKey eq 'a') eq false
n eq 1 and PartitionKey eq 'a'"""
OF_A = "$filter=PartitionKey%20eq%20%27a%27"
PARAMETERS = """\
$top=0
$top=1
$top=3
$top=1000
$top=1001
$top=-1
$top=x
$top=
$top=1.5
$select=n
$select=n,s,PartitionKey
$select=
$select=none
$select=%20n%20,%20s%20
$top=2&$select=RowKey
$format=application/json
$top=1&$top=2
$filter=true&$filter=false
timeout=1
timeout=-1
unknown=1
NextRowKey=cjI=
NextPartitionKey=YQ==
NextPartitionKey=YQ==&NextRowKey=cjI=
NextPartitionKey=%&NextRowKey=
NextTableName=x"""


def queries(az: Wire) -> None:
    create(az, "queries")
    for partition in ("a", "b", "or", "it's"):
        for row in range(5):
            az.table("POST", "/queries", "", entity(partition, f"r{row}", n=row, s=f"s{row}", t=row % 2 == 0))
    az.table(
        "POST",
        "/queries",
        "",
        entity(
            "A", "r0", partitionkey="a", when="2026-01-01T00:00:00Z", **{"when@odata.type": "Edm.DateTime"}
        ),
    )
    for filter_ in ("", "  PartitionKey  eq  'a'  ", *FILTERS.split("\n")):
        az.table("GET", "/queries()", f"$filter={quoted(filter_)}")
        az.table(
            "GET",
            "/queries",
            f"%24filter={filter_.replace(' ', '+').replace(chr(39), '%27')}",
            headers={"Accept": FULL},
        )
    for query in PARAMETERS.split("\n"):
        az.table("GET", "/queries()", query)
        az.table("GET", "/queries()", f"{OF_A}&{query}")
    az.table("GET", "/notthere()", OF_A)


def pages(az: Wire) -> None:
    create(az, "pages")
    for start in range(0, 1200, 100):
        rows: list[Change] = [
            ("POST", "/pages", entity("p" if start < 1100 else "q", f"r{start + n:04}"), {})
            for n in range(100)
        ]
        batch(az, rows)
    for filter_ in ("", "PartitionKey eq 'p'", "PartitionKey eq 'q'"):
        for top in ("", "&$top=400"):
            following = ""
            while True:
                page = az.table("GET", "/pages()", f"$filter={quoted(filter_)}{top}{following}")
                found = {
                    name.lower(): value for name, value in page.headers if "continuation" in name.lower()
                }
                if not found:
                    break
                words = ("NextPartitionKey", "NextRowKey")
                following = "".join(
                    f"&{word}={quoted(found[f'x-ms-continuation-{word.lower()}'])}" for word in words
                )
