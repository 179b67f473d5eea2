// Loaded into Azurite by `node --require`, before it: Azurite ends, with a last save, when its parent does, nothing
// but a kill cuts that save short, and a save that fails is no secret.
"use strict";
const fs = require("fs");
const http = require("http");

// The parent holds the other end of our standard input open; however the parent dies, the system closes it.
const end = () => process.kill(process.pid, "SIGTERM");
process.stdin.on("end", end).on("error", () => {}).resume();
process.stdin.unref?.(); // waiting for it must not keep alive an Azurite that has saved and closed

// Azurite hears one SIGTERM, once it has started. A second one (a process group's, then the parent's) would kill
// it in the midst of its save; an earlier one waits until Azurite can hear it, or gives up a start that hangs.
let heard = false;
let early = 0;
process.on("SIGTERM", () => {
  if (heard) return;
  heard = process.listenerCount("SIGTERM") > 1;
  if (heard) return;
  if (++early > 200) process.exit(1);
  setTimeout(end, 10);
});

// Azurite ignores the error of a save, and goes on to acknowledge what it cannot keep. So a save is tried until it
// succeeds, once a second; until then every request is answered 503. At the end it is tried once more only.
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
