// Loaded into Azurite by `node --require`, before it: makes its everyday operations several times cheaper, and
// their cost independent of how much is stored. What Azurite answers and stores stays the same, which
// tests/adapters/azurite_patches proves for one version of Azurite; legacy-queue starts no other with it.
"use strict";
require("./lokijs");
require("./messages");
require("./partitions");
require("./texts");
require("./queue_short_way");
require("./table_short_way");
