// Loaded into Azurite by `node --require` where it serves https: a certificate that is replaced in its file is
// used from the next connection on. Azurite itself reads it once, at its start.
"use strict";
const fs = require("fs");
const https = require("https");

const [cert, key] = ["--cert=", "--key="].map((name) =>
  process.argv.find((word) => word.startsWith(name)).slice(name.length));
const read = () => ({ cert: fs.readFileSync(cert, "latin1"), key: fs.readFileSync(key, "latin1") });
const servers = [];
let used = "";

const { createServer } = https;
https.createServer = (...args) => {
  servers.push(createServer(...args));
  return servers.at(-1);
};

function renew() {
  try {
    const found = read();
    if (found.cert + found.key === used) return;
    for (const server of servers) server.setSecureContext(found);
    used = found.cert + found.key;
  } catch {
    // one of two files is replaced already: the other follows
  }
}

// not by fs.watch: the files may be links into another folder, and in two folders
for (const file of new Set([cert, key])) fs.watchFile(file, { persistent: false, interval: 500 }, renew);
