// Ids and pop receipts take their few random bytes from a block: asking the system for each costs as much as a find.
"use strict";
const crypto = require("node:crypto");

const BLOCK = 8192; // bytes
const MOST = 64; // bytes that are taken from a block

const { randomBytes } = crypto;
let block = Buffer.alloc(0);
let taken = 0;

crypto.randomBytes = (size, done) => {
  if (done !== undefined || !(size <= MOST)) return randomBytes(size, done);
  if (taken + size > block.length) [block, taken] = [randomBytes(BLOCK), 0];
  return block.subarray(taken, (taken += size)); // no byte is given twice
};
