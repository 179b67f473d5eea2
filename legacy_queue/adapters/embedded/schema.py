"""The tables of the file.

Times are milliseconds since 1970. ``rows.state`` and ``rows.expires`` repeat properties of the row, by which
stores ask over all partitions: the first that of unresolved tasks, so that its index stays small. A block
without a ``place`` is uncommitted. The content of a block is in ``contents``, or in a file that it names.
``orphans`` are contents that no block has yet, or any more.
"""

APPLICATION_ID = 0x6C656771  # "legq", in the header of the file

_FIRST = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE rows (
  name TEXT, partition TEXT, key TEXT, state TEXT, expires INTEGER, etag TEXT, content TEXT,
  PRIMARY KEY (name, partition, key)
);
CREATE INDEX rows_by_state ON rows (name, state, partition, key) WHERE state IS NOT NULL;
CREATE INDEX rows_by_expiry ON rows (name, expires, partition, key) WHERE expires IS NOT NULL;
CREATE TABLE queues (name TEXT PRIMARY KEY, metadata TEXT) WITHOUT ROWID;
CREATE TABLE messages (
  id TEXT PRIMARY KEY, queue TEXT, receipt TEXT, text TEXT,
  inserted INTEGER, expires INTEGER, visible INTEGER, dequeued INTEGER, rank INTEGER
) WITHOUT ROWID;
CREATE INDEX messages_by_visibility ON messages (queue, visible, rank);
CREATE INDEX messages_by_expiry ON messages (expires);
CREATE TABLE blobs (
  name TEXT PRIMARY KEY, length INTEGER, type TEXT, encoding TEXT, modified INTEGER, etag TEXT
) WITHOUT ROWID;
CREATE TABLE blocks (blob TEXT, place INTEGER, id TEXT, length INTEGER, added INTEGER, content INTEGER);
CREATE INDEX blocks_by_blob ON blocks (blob);
CREATE INDEX blocks_by_age ON blocks (added) WHERE place IS NULL;
CREATE TABLE contents (key INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB, file TEXT);
CREATE TABLE orphans (content INTEGER PRIMARY KEY, since INTEGER);
"""

# number N makes version N + 1 of version N; never changed once it is released
MIGRATIONS = (_FIRST,)
EMPTIED = ("rows", "queues", "messages", "blobs", "blocks")  # by a reset; contents become orphans
