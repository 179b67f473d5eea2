"""The tables of the file.

Times are milliseconds since 1970. ``rows.state`` and ``rows.expires`` repeat properties of the row, by which
stores ask over all partitions: the first that of tasks which are unresolved or have unpublished events, and
of active members of groups, so that its index stays small.
``blobs.contents`` are the numbers of a blob's contents, in JSON. A content has ``data`` or a ``file``, and
``until`` where no blob names it. ``described`` has what a client of Azure stores beside some blobs.
"""

from legacy_queue.adapters.embedded import migrate_from_0_1_0

APPLICATION_ID = 0x6C656771  # "legq", in the header of the file

TABLES = """
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
  name TEXT PRIMARY KEY, length INTEGER, type TEXT, encoding TEXT, modified INTEGER, etag TEXT, contents TEXT
) WITHOUT ROWID;
CREATE TABLE contents (
  content INTEGER PRIMARY KEY AUTOINCREMENT,
  blob TEXT, id TEXT, until INTEGER, length INTEGER, file TEXT, data BLOB
);
CREATE INDEX contents_by_blob ON contents (blob);
CREATE INDEX contents_by_file ON contents (file) WHERE file IS NOT NULL;
CREATE INDEX contents_by_end ON contents (until) WHERE until IS NOT NULL;
"""

FIRST_VERSION = 2  # that of release 0.1.0; a file of an earlier one is refused

# Each makes the tables of a version those of the next; it never changes once released. TABLES has the newest.
STEPS: tuple[str, ...] = (migrate_from_0_1_0.STEP,)

# In a file of any version: a program that does not know it goes on, and the ETag tells what is stale then.
ADDED = """
CREATE TABLE IF NOT EXISTS described (
  name TEXT PRIMARY KEY, etag TEXT, md5 TEXT, metadata TEXT
) WITHOUT ROWID;
"""
