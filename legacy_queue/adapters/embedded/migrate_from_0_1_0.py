"""Migrates the tables of 0.1.0, from version 2 to 3.

It rewrites what 0.1.0 stored differently into the form that the stores read now. A released migration never
changes. So it does not use the stores; the SQL below writes the rows itself.

- A row of ``<prefix>timers`` with the property ``since`` said that effects of a task may be missing. It
  becomes a name in the row of a process that has ended. The first server takes over what that process owed.
  All other timers only said when a task is due, and the row of the task says this too.
- If the events of a resolved task are unpublished, its row now has the state ``unpublished``.
- A task whose taskGroupId is its taskId had no rows in its group. It gets them.
- The row of an active member now has a state, by which it is found among the other members. It also says
  which process wrote it: none of those that run now.
- ``<prefix>leases`` had leases and offers, which nobody needs after a restart.

An unpublished task does not become a name, because its row says the same. So a long outage of the broker does
not fill the row of the process that takes over, which has at most 1 MiB.
"""

_MIDNIGHT = "expires / 86400000 * 86400000 + 86400000"
_LAST_DAY = 253402214400000  # 9999-12-31, after which there is no midnight
_ETAG = """'W/"' || lower(hex(randomblob(8))) || '"'"""
_NAMES = 500  # of tasks in a row, because a property has at most 64 KiB

STEP = f"""
CREATE TABLE old_tasks (prefix TEXT, task TEXT, task_group TEXT, scheduler TEXT, expires INTEGER, since TEXT,
  is_active INTEGER, is_unpublished INTEGER, PRIMARY KEY (prefix, task)) WITHOUT ROWID;
INSERT INTO old_tasks
  SELECT substr(name, 1, length(name) - 5), partition,
    CASE WHEN json_valid(definition) THEN definition ->> '$.taskGroupId' END,
    CASE WHEN json_valid(definition) THEN definition ->> '$.schedulerId' END,
    expires, content ->> '$.since', state IS NOT NULL, content ->> '$.isUnpublished' IS 1
  FROM (SELECT *, (
      SELECT group_concat(substr(value, 2), '') FROM (
        SELECT value FROM json_each(content) WHERE key GLOB 'definition[0-9]*' ORDER BY length(key), key
      )
    ) AS definition FROM rows WHERE name LIKE '%tasks' AND key = 'task');

INSERT INTO rows
  SELECT prefix || 'processes', 'of-0.1.0-' || number, 'process', NULL, NULL, {_ETAG}, json_object(
    'owed0', 'b' || json_object('names', json_group_array(json_array(task, since, task_group)),
      'settled', 0, 'inherited', json('{{}}'), 'offers', json('[]')),
    'chunks', 1, 'hasEnded', json('true'))
  FROM (SELECT timers.*, (row_number() OVER (PARTITION BY timers.prefix) - 1) / {_NAMES} AS number
    FROM (SELECT substr(name, 1, length(name) - 6) AS prefix, substr(key, 1, instr(key, '.') - 1) AS task,
        substr(content ->> '$.taskGroupId', 2) AS task_group,
        strftime('%Y-%m-%dT%H:%M:%S', milliseconds / 1000, 'unixepoch')
          || printf('.%03dZ', milliseconds % 1000) AS since
      FROM (SELECT *, CAST(substr(content ->> '$.since', 2) AS INTEGER) AS milliseconds
        FROM rows WHERE name LIKE '%timers' AND content ->> '$.since' IS NOT NULL)
      ) AS timers LEFT JOIN old_tasks ON old_tasks.prefix = timers.prefix AND old_tasks.task = timers.task
    WHERE old_tasks.is_unpublished IS NOT 1 OR timers.task_group NOT IN ('', old_tasks.task_group))
  GROUP BY prefix, number;

UPDATE rows SET state = 'unpublished', content = json_set(content, '$.state', 'sunpublished')
  WHERE name LIKE '%tasks' AND key = 'task' AND state IS NULL AND content ->> '$.isUnpublished' IS 1;

DELETE FROM old_tasks WHERE task_group IS NOT task;
UPDATE old_tasks SET expires = {_MIDNIGHT} WHERE expires < {_LAST_DAY};
INSERT INTO rows
  SELECT prefix || 'groups', task, 'group', NULL, expires, {_ETAG},
    json_object('schedulerId', 's' || scheduler, 'expires', 'd' || expires)
  FROM old_tasks WHERE TRUE
  ON CONFLICT (name, partition, key) DO UPDATE SET expires = excluded.expires,
    content = json_set(content, '$.expires', 'd' || excluded.expires) WHERE expires < excluded.expires;
INSERT OR REPLACE INTO rows
  SELECT name, partition, 'open', NULL, rows.expires, {_ETAG}, json_object('expires', 'd' || rows.expires)
  FROM old_tasks JOIN rows ON name = prefix || 'groups' AND partition = task AND key = 'group'
  WHERE content ->> '$.sealed' IS NULL;
INSERT INTO rows
  SELECT prefix || 'groups', task, 'member-' || task, NULL, expires, {_ETAG},
    json_object('expires', 'd' || expires)
  FROM old_tasks;
INSERT OR IGNORE INTO rows
  SELECT prefix || 'groups', task, 'active-' || task || '-0000', NULL, expires, {_ETAG},
    json_object('since', since, 'expires', 'd' || expires)
  FROM old_tasks WHERE is_active;
UPDATE rows SET state = 'active', content = json_set(content, '$.state', 'sactive', '$.written', 's')
  WHERE name LIKE '%groups' AND key GLOB 'active-*';

DELETE FROM rows WHERE name LIKE '%timers' OR name LIKE '%leases';
DROP TABLE old_tasks;
"""
