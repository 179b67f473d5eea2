// Azurite looks at every message of the account to find a queue's expired and its visible ones, on each operation.
// Here a queue knows when its next message expires, and keeps its messages in a heap, the next visible first.
"use strict";
const azurite = require("./azurite");
const Store = azurite("./queue/persistence/LokiQueueMetadataStore").default.prototype;
const { MessageHeap } = require("./message_heap");

const queueKey = (account, queue) => `${account}/${queue}`;
const messagesOf = (store) => store.db.getCollection(store.MESSAGES_COLLECTION);

// Two indexes cost time and find nothing: there is one account, and no message has a `visibleTime`.
const { init } = Store;
Store.init = async function () {
  await init.call(this);
  const { binaryIndices } = messagesOf(this);
  delete binaryIndices.accountName;
  delete binaryIndices.visibleTime;
};

const nextExpiries = new WeakMap(); // store -> Map: queue -> no message of it expires before, in ms since 1970
function nextExpiriesOf(store) {
  if (!nextExpiries.has(store)) nextExpiries.set(store, new Map());
  return nextExpiries.get(store);
}

const { insertMessage, clearExpiredMessages } = Store;
Store.insertMessage = async function (message, context) {
  const inserted = insertMessage.call(this, message, context);
  const known = nextExpiriesOf(this);
  const key = queueKey(message.accountName, message.queueName);
  const expires = message.expirationTime.getTime();
  if (known.get(key) > expires) known.set(key, expires);
  return inserted;
};

Store.clearExpiredMessages = async function (account, queue, context) {
  const known = nextExpiriesOf(this);
  const key = queueKey(account, queue);
  if (known.get(key) > Date.now()) return this.checkQueueExist(account, queue, context);
  const cleared = clearExpiredMessages.call(this, account, queue, context);
  let next = Infinity;
  for (const { expirationTime } of messagesOf(this).find({ accountName: account, queueName: queue }))
    // what was read from disk is a string, and Azurite lets such a message live for ever
    if (expirationTime instanceof Date) next = Math.min(next, expirationTime.getTime());
  known.set(key, next);
  return cleared;
};

const heaps = new WeakMap(); // collection of messages -> Map: queue -> MessageHeap
function heapsOf(messages) {
  if (heaps.has(messages)) return heaps.get(messages);
  const byQueue = new Map();
  const add = (message) => {
    const key = queueKey(message.accountName, message.queueName);
    if (!byQueue.has(key)) byQueue.set(key, new MessageHeap(messages));
    byQueue.get(key).add(message);
  };
  messages.data.forEach(add);
  messages.on("insert", add);
  messages.on("update", add);
  heaps.set(messages, byQueue);
  return byQueue;
}

function visibleMessages(store, account, queue, count, queryDate) {
  const heap = heapsOf(messagesOf(store)).get(queueKey(account, queue));
  return heap === undefined ? [] : heap.visible(queryDate ? queryDate.getTime() : Date.now(), Math.floor(count));
}

// These two do what Azurite's own do, but for how they find the messages.
Store.peekMessages = async function (account, queue, numOfMessages = 1, queryDate, context) {
  this.checkQueueExist(account, queue, context);
  this.clearExpiredMessages(account, queue, context);
  return visibleMessages(this, account, queue, numOfMessages, queryDate).map((message) => this.messageCopy(message));
};

Store.getMessages = async function (account, queue, timeNextVisible, popReceipt, numOfMessages, queryDate, context) {
  this.checkQueueExist(account, queue, context);
  this.clearExpiredMessages(account, queue, context);
  const count = numOfMessages === undefined || numOfMessages < 1 ? 1 : numOfMessages;
  const messages = visibleMessages(this, account, queue, count, queryDate);
  for (const message of messages) {
    message.timeNextVisible = timeNextVisible.getTime();
    message.popReceipt = popReceipt;
    message.dequeueCount = Number(message.dequeueCount) + 1;
  }
  messagesOf(this).update(messages);
  return messages.map((message) => this.messageCopy(message));
};
