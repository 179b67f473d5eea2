"""The tables of the file.

Times are in milliseconds since 1970. ``rows.state`` and ``rows.expires`` repeat properties of the row,
because the stores query them over all partitions. To keep its index small, ``rows.state`` is set only for
tasks that are unresolved or have unpublished events, and for active members of groups.

``blobs.contents`` lists the numbers of a blob's contents in JSON. A content has ``data`` or a ``file``. If no
blob names it, it has ``until``. ``described`` has the MD5 and the metadata that Azure clients store for some
blobs.
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

FIRST_VERSION = 2  # the version of release 0.1.0; files of an earlier version are refused

# Each step migrates the tables from one version to the next. A released step never changes. TABLES is the
# newest.
STEPS: tuple[str, ...] = (migrate_from_0_1_0.STEP,)

# This is added to a file of any version. An older program ignores it; the ETag shows which rows are stale
# then.
ADDED = """
CREATE TABLE IF NOT EXISTS described (
  name TEXT PRIMARY KEY, etag TEXT, md5 TEXT, metadata TEXT
) WITHOUT ROWID;
"""
