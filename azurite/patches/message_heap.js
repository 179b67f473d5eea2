// The messages of one queue, the next visible first, of several the one that was put first.
"use strict";
const SPARE = 64; // entries that may be out of date, at least, before all of them are dropped

const before = (one, other) => one.time < other.time || (one.time === other.time && one.id < other.id);

// A binary heap of entries. A message that is updated gets a new entry, and keeps the old one, out of date.
class MessageHeap {
  constructor(collection) {
    this.collection = collection;
    this.entries = [];
    this.most = SPARE;
  }

  add(message) {
    this.push({ time: message.timeNextVisible, id: message.$loki, message });
    if (this.entries.length > this.most) this.tidy();
  }

  // At most `count` messages that are visible at `time`, ms since 1970; they stay in the heap.
  visible(time, count) {
    const found = new Map(); // message -> its entry; a message may have two that look alike
    while (found.size < count && this.entries.length > 0 && this.entries[0].time <= time) {
      const entry = this.pop();
      if (this.isCurrent(entry)) found.set(entry.message, entry);
    }
    for (const entry of found.values()) this.push(entry);
    return [...found.keys()];
  }

  isCurrent({ time, id, message }) {
    return message.timeNextVisible === time && this.collection.get(id) === message;
  }

  tidy() {
    this.entries = this.entries.filter((entry) => this.isCurrent(entry));
    this.entries.sort((one, other) => (before(one, other) ? -1 : 1)); // sorted entries are a heap
    this.most = 3 * this.entries.length + SPARE;
  }

  push(entry) {
    const { entries } = this;
    let place = entries.length;
    for (let parent; place > 0 && before(entry, entries[(parent = (place - 1) >> 1)]); place = parent)
      entries[place] = entries[parent];
    entries[place] = entry;
  }

  pop() {
    const { entries } = this;
    const top = entries[0];
    const last = entries.pop();
    if (entries.length === 0) return top;
    let place = 0;
    for (let child; (child = 2 * place + 1) < entries.length; place = child) {
      if (child + 1 < entries.length && before(entries[child + 1], entries[child])) child += 1;
      if (!before(entries[child], last)) break;
      entries[place] = entries[child];
    }
    entries[place] = last;
    return top;
  }
}

module.exports = { MessageHeap };
