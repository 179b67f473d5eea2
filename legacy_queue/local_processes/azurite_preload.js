// `node --require` loads this before Azurite. It makes Azurite end, with a last save, when its parent ends. Only a
// kill can cut this save short. If a save fails, clients learn of it.
"use strict";
const fs = require("fs");
const http = require("http");

// The parent holds the other end of our standard input. However the parent dies, the system closes that end.
const end = () => process.kill(process.pid, "SIGTERM");
process.stdin.on("end", end).on("error", () => {}).resume();
process.stdin.unref?.(); // once Azurite has saved and closed, an open input must not keep it alive

// Azurite handles one SIGTERM, and only after its start. A second one (of the process group, then of the parent) would
// kill it in the middle of its save, so it is ignored. One that comes too early is repeated until Azurite handles it;
// a start that hangs is given up.
let heard = false;
let early = 0;
process.on("SIGTERM", () => {
  if (heard) return;
  heard = process.listenerCount("SIGTERM") > 1;
  if (heard) return;
  if (++early > 200) process.exit(1);
  setTimeout(end, 10);
});

// Azurite ignores the error of a save, and goes on to acknowledge what it cannot keep. So a failed save is repeated
// once a second until it succeeds, and until then every request is answered with 503. At the end of Azurite it is
// tried only once.
const failed = new Set();
const { writeFile } = fs;
fs.writeFile = (path, text, ...rest) => {
  if (!/__azurite_db_\w+\.json~$/.test(path)) return writeFile(path, text, ...rest);
  const done = rest.pop();
  const save = () => writeFile(path, text, ...rest, (error) => {
    if (!error) {
      failed.delete(path);
      return done(error);
    }
    if (!failed.has(path)) console.error(`${path} cannot be saved: ${error.message}`);
    failed.add(path);
    if (!heard) return setTimeout(save, 1000);
    process.exitCode = 1;
    return done(error);
  });
  save();
};

const { emit } = http.Server.prototype;
http.Server.prototype.emit = function (event, request, response) {
  if (event !== "request" || failed.size === 0) return emit.apply(this, arguments);
  request.resume();
  response.writeHead(503, { "content-type": "application/xml" });
  response.end("<Error><Code>ServerBusy</Code><Message>Azurite cannot save its data.</Message></Error>");
  return true;
};
