// Insert, get, replace, merge, delete and query entities, and batches, the short way.
"use strict";
const azurite = require("./azurite");
const { ShortWay, logger, shorten, whole } = require("./short_way");
const part = (name) => azurite(`./table/${name}`).default;
const { Operation } = azurite("./table/generated/artifacts/operation");
const { DEFAULT_TABLE_CONTEXT_PATH, QUERY_RESULT_MAX_NUM } = azurite("./table/utils/constants");
const AccountSASAuthenticator = part("authentication/AccountSASAuthenticator");
const TableHandler = part("handlers/TableHandler");
const TableSASAuthenticator = part("authentication/TableSASAuthenticator");
const TableSharedKeyAuthenticator = part("authentication/TableSharedKeyAuthenticator");
const TableSharedKeyLiteAuthenticator = part("authentication/TableSharedKeyLiteAuthenticator");

const TABLE = /^(?!tables$)[A-Za-z][A-Za-z0-9]{2,62}$/i;
const KEYS = /^([^(]*)\(PartitionKey='((?:[^']|'')*)',\s?RowKey='((?:[^']|'')*)'\)$/;
const unquoted = (key) => key.replaceAll("''", "'");
const QUERY = ["$filter", "$top", "$select", "NextPartitionKey", "NextRowKey"];

const requestIdOf = (request) => request.getHeader("x-ms-client-request-id");

// Of an operation on one entity, which takes no parameters but those of its signature.
function options(request) {
  if (QUERY.some((name) => request.getQuery(name) !== undefined)) return undefined;
  return { requestId: requestIdOf(request), ifMatch: request.getHeader("if-match"), queryOptions: {} };
}

// An object of JSON; undefined for anything that Azurite has to judge.
function properties(body, request) {
  request.setBody(body);
  if (request.getHeader("content-type")?.split(";", 1)[0] !== "application/json" || body.includes("__proto__"))
    return undefined;
  try {
    const read = JSON.parse(body);
    return typeof read === "object" && read !== null && !Array.isArray(read) ? read : undefined;
  } catch {
    return undefined;
  }
}

class TableShortWay extends ShortWay {
  constructor(longWay, { accountDataStore, metadataStore }) {
    super("table", longWay, {
      authenticators: [
        new TableSharedKeyLiteAuthenticator(accountDataStore, logger),
        new TableSharedKeyAuthenticator(accountDataStore, logger),
        new AccountSASAuthenticator(accountDataStore, logger),
        new TableSASAuthenticator(accountDataStore, metadataStore, logger),
      ],
      Context: part("context/TableStorageContext"),
      contextPath: DEFAULT_TABLE_CONTEXT_PATH,
      parameters: QUERY,
    });
    const handler = new TableHandler(metadataStore, logger);
    this.ofAccount = { POST: batch(handler) };
    this.ofTable = { GET: query(handler), POST: insert(handler) };
    this.ofEntity = {
      GET: get(handler),
      PUT: write(Operation.Table_UpdateEntity, (read, context) => handler.updateEntity(...UNNAMED, read, context)),
      PATCH: write(Operation.Table_MergeEntity, (read, context) => handler.mergeEntity(...UNNAMED, read, context)),
      MERGE: write(Operation.Table_MergeEntityWithMerge, (read, context) => handler.mergeEntity(...UNNAMED, read, context)),
      DELETE: remove(handler),
    };
  }

  // Of the path /account/$batch, /account/table, /account/table() or /account/table(PartitionKey='...',RowKey='...').
  target(method, [account, section, more]) {
    if (section === undefined || more !== undefined || account.endsWith("-secondary")) return undefined;
    if (section === "$batch") return chosen(this.ofAccount[method], { account, tableName: section });
    const keys = KEYS.exec(section);
    const tableName = keys ? keys[1] : method === "GET" && section.endsWith("()") ? section.slice(0, -2) : section;
    if (!TABLE.test(tableName)) return undefined;
    if (keys === null) return chosen(this.ofTable[method], { account, tableName });
    const [partitionKey, rowKey] = keys.slice(2).map(unquoted);
    return chosen(this.ofEntity[method], { account, tableName, partitionKey, rowKey });
  }
}

const chosen = (operation, named) => operation && { operation, named };
const UNNAMED = [undefined, undefined, undefined]; // table and keys: the handlers take them from the context

const insert = (handler) => ({
  code: Operation.Table_InsertEntity,
  options,
  readBody: properties,
  handle: (read, tableEntityProperties, context) =>
    handler.insertEntity(undefined, { ...read, tableEntityProperties }, context),
});

const get = (handler) => ({
  code: Operation.Table_QueryEntitiesWithPartitionAndRowKey,
  options,
  handle: (read, _, context) => handler.queryEntitiesWithPartitionAndRowKey(...UNNAMED, read, context),
});

const write = (code, call) => ({
  code,
  options,
  readBody: properties,
  handle: (read, tableEntityProperties, context) => call({ ...read, tableEntityProperties }, context),
});

const remove = (handler) => ({
  code: Operation.Table_DeleteEntity,
  options: (request) => (request.getHeader("if-match") === undefined ? undefined : options(request)),
  handle: (read, _, context) => handler.deleteEntity(...UNNAMED, read.ifMatch, read, context),
});

const query = (handler) => ({
  code: Operation.Table_QueryEntities,
  options: (request) => {
    const top = whole(request, "$top", 1, QUERY_RESULT_MAX_NUM);
    if (top === null) return undefined;
    const [filter, select, nextPartitionKey, nextRowKey] = ["$filter", "$select", "NextPartitionKey", "NextRowKey"].map(
      (name) => request.getQuery(name),
    );
    return { requestId: requestIdOf(request), nextPartitionKey, nextRowKey, queryOptions: { filter, select, top } };
  },
  handle: (read, _, context) => handler.queryEntities(undefined, read, context),
});

const batch = (handler) => ({
  code: Operation.Table_Batch,
  options: (request) => {
    const [type, length] = ["content-type", "content-length"].map((name) => request.getHeader(name));
    return type && length && options(request) && { type, length: Number(length), requestId: requestIdOf(request) };
  },
  handle: ({ type, length, requestId }, _, context) =>
    handler.batch(context.request.getBodyStream(), type, length, { requestId }, context),
});

shorten("table/Table", (longWay, factory) => new TableShortWay(longWay, factory));
