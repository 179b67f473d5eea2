// Loaded into Azurite by `node --require`: says of each answer whether Azurite's Express application gave it.
"use strict";
const { realpathSync } = require("node:fs");
const { createRequire } = require("node:module");

const { application } = createRequire(realpathSync(process.argv[1]))("express");
const { handle } = application;
application.handle = function (request, response, ...more) {
  response.setHeader("x-long-way", request.method);
  return handle.call(this, request, response, ...more);
};
