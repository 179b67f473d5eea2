// Loaded into Azurite by scripts/bench (`node --require`): counts the requests by operation, and answers
// GET /bench/counts on each port with the counts as JSON, "verb name" -> requests.
"use strict";
const http = require("node:http");

const QUEUE = { POST: "put", GET: "receive", PUT: "update", DELETE: "delete" };
const TABLE = { GET: "get", PATCH: "merge", MERGE: "merge", PUT: "replace", DELETE: "remove" };
const counts = {};
const { emit } = http.Server.prototype;

function operation({ method, url }) {
  const [, , name = "", rest] = url.split("?")[0].split("/");
  if (rest === "messages") return `${url.includes("peekonly=true") ? "peek" : QUEUE[method]} ${name}`;
  if (name === "$batch") return "batch";
  const [table, key] = name.split("(");
  if (key === ")") return `query ${table}`;
  if (key) return `${TABLE[method]} ${table}`;
  return method === "POST" && rest === undefined ? `insert ${table}` : `other ${method}`;
}

http.Server.prototype.emit = function (event, request, response) {
  if (event !== "request") return emit.apply(this, arguments);
  if (request.url === "/bench/counts") {
    response.end(JSON.stringify(counts));
    return true;
  }
  const key = operation(request);
  counts[key] = (counts[key] ?? 0) + 1;
  return emit.apply(this, arguments);
};
