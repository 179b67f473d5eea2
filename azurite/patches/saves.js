// Every 5 s LokiJS turns all documents of a database into text and writes that. Here only those documents are turned
// into text anew that may have changed since the last save; the others are written as they were.
//
// The file holds the same JSON, but for the order of its keys, is written as a whole and takes the old one's place, as
// Azurite's does. The databases of blobs are left alone: their handlers keep documents while a body is on its way.
"use strict";
const { createWriteStream } = require("node:fs");
const { basename } = require("node:path");
const azurite = require("./azurite");
const Loki = azurite("lokijs");
const { DEFAULT_QUEUE_LOKI_DB_PATH } = azurite("./queue/utils/constants");
const { DEFAULT_TABLE_LOKI_DB_PATH } = azurite("./table/utils/constants");
const { Collection, LokiFsAdapter, Resultset } = Loki;

const FILES = [DEFAULT_QUEUE_LOKI_DB_PATH, DEFAULT_TABLE_LOKI_DB_PATH];
const CHUNK = 32; // ids of the documents whose text is kept in one piece

// collection -> Map: number of a chunk -> how many documents it has, and their text, each with a comma before it. A
// chunk that is not there is to be made: a document of it may have changed.
const chunks = new WeakMap();

// LokiJS keeps a collection's documents in the order of their ids, and gives no id twice.
const chunkOf = (document) => Math.floor(document.$loki / CHUNK);

// Who changes a document has got it from its collection, and does it before the next save. Azurite changes some without
// a word: the Timestamp of an entity that is read. `get` is also what an update and a removal begin with.
function forget(collection, document) {
  if (document) chunks.get(collection)?.delete(chunkOf(document));
}

const { by, get, insertOne, removeBatchByPositions } = Collection.prototype;
Collection.prototype.by = function (field, value) {
  const found = by.call(this, field, value);
  forget(this, found);
  return found;
};

Collection.prototype.get = function (id, returnPosition) {
  const found = get.call(this, id, returnPosition);
  forget(this, returnPosition && found ? found[0] : found);
  return found;
};

Collection.prototype.insertOne = function (document, bulkInsert) {
  const inserted = insertOne.call(this, document, bulkInsert);
  forget(this, inserted);
  return inserted;
};

Collection.prototype.removeBatchByPositions = function (positions) {
  for (const position of positions) forget(this, this.data[position]);
  return removeBatchByPositions.call(this, positions);
};

const { data } = Resultset.prototype;
Resultset.prototype.data = function (options) {
  const found = data.call(this, options);
  for (const document of found) forget(this.collection, document);
  return found;
};

const { serialize, serializeReplacer } = Loki.prototype;

// The text in pieces, strings and buffers.
Loki.prototype.serialize = function (options) {
  if (!FILES.includes(basename(this.filename))) return serialize.call(this, options);
  const { collections, ...rest } = this;
  const pieces = [`${opened(rest)},"collections":[`];
  collections.forEach((collection, place) => {
    if (place > 0) pieces.push(",");
    addCollection(pieces, collection);
  });
  pieces.push("]}");
  return pieces;
};

function addCollection(pieces, collection) {
  const { data: documents, idIndex, binaryIndices, ...rest } = collection;
  pieces.push(`${opened(rest)},"idIndex":${JSON.stringify(idIndex)},"binaryIndices":${JSON.stringify(binaryIndices)}`);
  pieces.push(',"data":[');
  if (!chunks.has(collection)) chunks.set(collection, new Map());
  const kept = chunks.get(collection);
  for (let at = 0; at < documents.length; ) {
    const number = chunkOf(documents[at]);
    if (!kept.has(number)) kept.set(number, makeChunk(documents, at, number));
    const { count, text } = kept.get(number);
    pieces.push(at === 0 ? text.subarray(1) : text);
    at += count;
  }
  pieces.push("]}");
}

function makeChunk(documents, start, number) {
  let end = start + 1;
  while (end < documents.length && chunkOf(documents[end]) === number) end += 1;
  const texts = documents.slice(start, end).map((document) => `,${JSON.stringify(document, serializeReplacer)}`);
  return { count: end - start, text: Buffer.from(texts.join("")) };
}

const opened = (object) => JSON.stringify(object, serializeReplacer).slice(0, -1);

const { saveDatabase } = LokiFsAdapter.prototype;
LokiFsAdapter.prototype.saveDatabase = function (name, text, done) {
  if (typeof text === "string") return saveDatabase.call(this, name, text, done);
  const file = createWriteStream(`${name}~`);
  file.on("error", (error) => done(new Error(error)));
  file.on("finish", () => this.fs.rename(`${name}~`, name, done));
  for (const piece of text) file.write(piece);
  file.end();
};
