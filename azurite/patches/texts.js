// A queue message's text is appended to its file by one write, and read from memory while it is young. Azurite opens
// a stream for each, in a queue of operations of its own, and waits until the disk has it.
//
// It waits so that no index on the disk names a text that is not there. Here the disk gets the texts before each save
// of the index, every 5 s. What was put since the last save is lost with the machine either way: no index names it.
"use strict";
const fs = require("node:fs");
const azurite = require("./azurite");
const FSExtentStore = azurite("./common/persistence/FSExtentStore").default;
const { DEFAULT_MAX_EXTENT_SIZE } = azurite("./common/utils/constants");
const Factory = azurite("./queue/QueueRequestListenerFactory").default.prototype;
const utils = azurite("./queue/utils/utils");

const IDLE = 0; // Azurite's AppendStatusCode
const MAX_CACHE = 64 * 2 ** 20; // bytes
const ENTRY = 256; // bytes that a text in the cache takes besides itself, about

// As much of an extent store as the handlers of the queue service call. Azurite's collector has the store itself.
class MessageTexts {
  constructor(store, database) {
    this.store = store;
    this.cache = new Map(); // place in a file -> text, the oldest first
    this.cached = 0; // bytes
    const { persistenceAdapter } = database;
    const { saveDatabase } = persistenceAdapter;
    persistenceAdapter.saveDatabase = (name, index, done) =>
      this.sync((error) => (error ? done(error) : saveDatabase.call(persistenceAdapter, name, index, done)));
  }

  async appendExtent(data, contextId) {
    const [file] = this.store.activeWriteExtents; // queues write one file at a time
    if (file.offset >= DEFAULT_MAX_EXTENT_SIZE || file.appendStatus !== IDLE) {
      if (file.fd !== undefined) fs.fdatasyncSync(file.fd); // Azurite is about to close it and begin another
      return this.store.appendExtent(data, contextId);
    }
    const chunk = { id: file.id, offset: file.offset, count: data.length };
    this.write(file, data);
    const size = (file.offset += data.length);
    const { id, locationId } = file;
    await this.store.metadataStore.updateExtent({ id, locationId, path: id, size, lastModifiedInMS: Date.now() });
    this.remember(chunk, data.toString());
    return chunk;
  }

  async readExtent(chunk, contextId) {
    return this.cache.get(place(chunk)) ?? this.store.readExtent(chunk, contextId);
  }

  write(file, data) {
    file.fd ??= fs.openSync(this.store.generateExtentPath(file.locationId, file.id), "a");
    try {
      for (let written = 0; written < data.length; ) written += fs.writeSync(file.fd, data, written);
    } catch (error) {
      fs.ftruncateSync(file.fd, file.offset); // the next text must begin where its index will say
      throw error;
    }
  }

  sync(done) {
    const [{ fd }] = this.store.activeWriteExtents;
    if (fd === undefined) done();
    else fs.fdatasync(fd, done);
  }

  remember(chunk, text) {
    this.cache.set(place(chunk), text);
    this.cached += chunk.count + ENTRY;
    for (const oldest of this.cache.keys()) {
      if (this.cached <= MAX_CACHE) break;
      this.cache.delete(oldest);
      this.cached -= Number(oldest.split("/")[2]) + ENTRY;
    }
  }
}

const place = ({ id, offset, count }) => `${id}/${offset}/${count}`;

const { readStreamToString } = utils;
utils.readStreamToString = (data) => (typeof data === "string" ? data : readStreamToString(data));

const { createRequestListener } = Factory;
Factory.createRequestListener = function () {
  if (this.extentStore instanceof FSExtentStore)
    this.extentStore = new MessageTexts(this.extentStore, this.metadataStore.db);
  return createRequestListener.call(this);
};
