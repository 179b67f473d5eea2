// Takes out of LokiJS, Azurite's database, what makes an operation dearer the more is stored.
"use strict";
const azurite = require("./azurite");
const { Collection, Resultset } = azurite("lokijs");

// By what the documents of a collection are told apart; an update never changes it. Other collections are left alone.
const KEYS = { $QUEUES_COLLECTION$: ["name"], $MESSAGES_COLLECTION$: ["messageId", "queueName"] };
const keysOf = ({ name, binaryIndices }) => KEYS[name] ?? ("RowKey" in binaryIndices ? ["PartitionKey", "RowKey"] : []);

// LokiJS takes the index of the first condition: the account, of which there is one, or the partition. Here it takes
// the index that leaves the fewest documents. What is found is the same: the conditions are joined by "and".
const { findAnd } = Resultset.prototype;
Resultset.prototype.findAnd = Resultset.prototype.$and = function (conditions) {
  return findAnd.call(this, this.filterInitialized ? conditions : mostSelectiveFirst(this.collection, conditions));
};

function mostSelectiveFirst(collection, conditions) {
  let first;
  let fewest = Infinity;
  for (const name of keysOf(collection)) {
    const condition = conditions.find((one) => typeof one[name] === "string");
    if (condition === undefined) continue;
    collection.ensureIndex(name);
    const [from, to] = collection.calculateRange("$eq", name, condition[name]);
    if (to - from < fewest) [first, fewest] = [condition, to - from];
    if (fewest <= 0) break;
  }
  return first === undefined ? conditions : [first, ...conditions.filter((condition) => condition !== first)];
}

// An update looks in every index for the place of its document, which cannot have moved in these.
const { adaptiveBinaryIndexUpdate } = Collection.prototype;
Collection.prototype.adaptiveBinaryIndexUpdate = function (position, name) {
  if (!keysOf(this).includes(name)) adaptiveBinaryIndexUpdate.call(this, position, name);
};

// LokiJS sorts every index of a collection anew on each batch removal, even of nothing, and on each update of a list.
// Azurite's queue removes nothing and updates a list of one on every receive, update and delete, and its collector
// removes extents in batches of one. Done one at a time, each document only moves within the indexes.
const { removeBatch, removeBatchByPositions, update } = Collection.prototype;
Collection.prototype.removeBatch = function (documents) {
  if (documents.length > 0) removeBatch.call(this, documents);
};

Collection.prototype.removeBatchByPositions = function (positions) {
  if (positions.length === 1) this.remove(this.data[positions[0]]);
  else if (positions.length > 1) removeBatchByPositions.call(this, positions);
};

Collection.prototype.update = function (documents) {
  if (!Array.isArray(documents)) return update.call(this, documents);
  for (const document of documents) update.call(this, document);
};
