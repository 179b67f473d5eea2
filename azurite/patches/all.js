// Loaded into Azurite by `node --require`, before it: makes its everyday operations several times cheaper, and
// their cost hardly dependent on how much is stored (scripts/azurite-cost).
//
// What Azurite answers, status, headers in their order and body, what it stores, and what it keeps over its end stay
// the same. tests/adapters/azurite_patches proves that for one version, PATCHED_VERSION in
// legacy_queue/adapters/azurite.py; legacy-queue starts no other with these patches. Two differences are meant: a
// character that two packets share is kept whole, and the disk gets a message's text with the next save, not at once.
"use strict";
require("./random"); // ids and receipts
require("./lokijs"); // the database: the best index first, no index is sorted anew
require("./saves"); // the save every 5 s: only what may have changed is made into text
require("./messages"); // the expired and the visible messages of a queue, without a look at the others
require("./partitions"); // a query of a partition reads that partition
require("./texts"); // the text of a message: one write, read from memory
require("./queue_short_way"); // messages and entities go past Express, the readers and the writers
require("./table_short_way");
