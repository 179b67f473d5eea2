// Loaded into Azurite by `node --require`: it saves every 50 ms, ends if a save is not what LokiJS itself would save,
// and says how many documents of each save were made into text.
"use strict";
const assert = require("node:assert");
const { realpathSync } = require("node:fs");
const { createRequire } = require("node:module");

const { stringify } = JSON;
let made = 0;
JSON.stringify = function (value, ...more) {
  if (value?.$loki !== undefined) made += 1;
  return stringify(value, ...more);
};

process.nextTick(() => {
  const Loki = createRequire(realpathSync(process.argv[1]))("lokijs");
  const { autosaveEnable, serialize, serializeReplacer } = Loki.prototype;
  Loki.prototype.autosaveEnable = function (...options) {
    this.autosaveInterval = 50;
    autosaveEnable.apply(this, options);
  };
  Loki.prototype.serialize = function (options) {
    made = 0;
    const saved = serialize.call(this, options);
    if (typeof saved === "string") return saved; // LokiJS's own
    console.log(`saved ${made}`);
    const whole = saved.map(String).join("");
    assert.deepStrictEqual(JSON.parse(whole), JSON.parse(stringify(this, serializeReplacer)));
    return saved;
  };
});
