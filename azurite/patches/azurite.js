// Requires what Azurite itself requires: `azurite("lokijs")`, `azurite("./queue/utils/utils")`.
"use strict";
const { realpathSync } = require("node:fs");
const { createRequire } = require("node:module");

module.exports = createRequire(realpathSync(process.argv[1])); // node_modules/azurite/dist/src/azurite.js
