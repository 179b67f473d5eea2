// The everyday operations of queues and tables go straight to Azurite's own authenticators and handlers. On Azurite's
// way Express, the choice among all operations, the generated readers and writers and the XML parser cost several
// times what a handler does.
//
// A request goes the short way only if every part of it is of the plainest form. Whatever else comes, and whoever is
// not authenticated, goes Azurite's way from the start. A handler is never called twice: what it answers that is
// unusual, and what it refuses, is written by Azurite's own writers.
"use strict";
const { randomUUID } = require("node:crypto");
const { Readable } = require("node:stream");
const azurite = require("./azurite");
const RequestAdapter = azurite("./queue/generated/ExpressRequestAdapter").default;
const ResponseAdapter = azurite("./queue/generated/ExpressResponseAdapter").default;
const logger = azurite("./common/Logger").default;

// Express reads these in a URL otherwise than `readQuery` does.
const ODD_URL = /[#[\]]|%5[bd]/i;
const NO_CONTENT = 204;
const MAX_ACCEPTED = 1000; // signatures that are remembered
const SAS = ["sv", "ss", "srt", "sp", "se", "st", "spr", "sip", "sig"];

// Azurite's request, without what Express adds to it.
class Request extends RequestAdapter {
  constructor(message, path, query) {
    super(message);
    this.path = path;
    this.query = query;
  }

  getPath() {
    return this.path;
  }

  getQuery(name) {
    return this.query.get(name);
  }

  getHeader(name) {
    return this.req.headers[name.toLowerCase()];
  }

  getProtocol() {
    return this.req.socket.encrypted ? "https" : "http";
  }

  getEndpoint() {
    return `${this.getProtocol()}://${this.getHeader("host")}`;
  }
}

// Azurite's response, for its writers.
class Response extends ResponseAdapter {
  setStatusCode(code) {
    this.res.statusCode = code;
    return this;
  }
}

// The same for its handlers, which only name a content type.
class HandlerResponse extends Response {
  setContentType(type) {
    this.type = type;
    return this;
  }
}

// A body that was read before the long way was chosen is read there again.
for (const service of ["queue", "table"]) {
  const adapter = azurite(`./${service}/generated/ExpressRequestAdapter`).default.prototype;
  adapter.getBodyStream = function () {
    return this.req.bodyAgain ?? this.req;
  };
}

const decoded = (word) => (/[%+]/.test(word) ? decodeURIComponent(word.replaceAll("+", " ")) : word);

// Map of name -> value; undefined for a name that is not expected, or comes twice.
function readQuery(text, expected) {
  const query = new Map();
  for (const pair of text === "" ? [] : text.split("&")) {
    const at = pair.indexOf("=");
    const name = decoded(pair.slice(0, at));
    if (at < 1 || !expected.has(name) || query.has(name)) return undefined;
    query.set(name, decoded(pair.slice(at + 1)));
  }
  return query;
}

// A service's short way: a subclass says which operations go it, and how.
class ShortWay {
  constructor(service, longWay, { authenticators, Context, contextPath, parameters }) {
    Object.assign(this, { longWay, authenticators, Context, contextPath, accepted: new Map() });
    this.expected = new Set([...SAS, ...parameters]);
    const part = (name) => azurite(`./${service}/${name}`);
    this.server = `Azurite-${service === "queue" ? "Queue" : "Table"}/${part("utils/constants").VERSION}`;
    this.specifications = part("generated/artifacts/specifications").default;
    this.writeResponse = part("generated/utils/serializer").serialize;
    this.writeError = part("generated/middleware/error.middleware").default;
  }

  // What node's HTTP server calls, as it would call Azurite's Express application.
  listen(message, response) {
    const plain = this.plain(message);
    if (plain === undefined) this.longWay(message, response);
    else this.serve(message, response, plain).catch(() => response.destroy());
  }

  // What the request asks for, if it is plain enough for the short way; undefined if not.
  plain(message) {
    const { headers, method, url } = message;
    if (url[0] !== "/" || ODD_URL.test(url) || headers.origin !== undefined || headers["x-http-method"] !== undefined)
      return undefined;
    const [path, text = "", more] = url.split("?");
    try {
      const query = more === undefined ? readQuery(text, this.expected) : undefined;
      const target = query && this.target(method, decodeURIComponent(path).slice(1).split("/"));
      if (target === undefined) return undefined;
      const request = new Request(message, path, query);
      const options = target.operation.options(request);
      return options && { ...target, request, options };
    } catch {
      return undefined; // a % that decodes to nothing
    }
  }

  async serve(message, response, { operation, named, request, options }) {
    const context = this.context(request, response, operation, named);
    if (!(await this.isAuthenticated(request, context))) return this.longWay(message, response);
    let body;
    if (operation.readBody) {
      const bytes = await read(message);
      if (bytes === undefined) return response.destroy(); // the client has gone: nothing was asked
      body = operation.readBody(bytes.toString(), request);
      if (body === undefined) {
        message.bodyAgain = Readable.from(bytes.length > 0 ? [bytes] : []);
        return this.longWay(message, response);
      }
    }
    const { response: held } = context; // a batch puts another request into the context
    try {
      await this.answer(await operation.handle(options, body, context), operation, context, held);
    } catch (error) {
      this.writeError(context, error, request, this.azuriteResponse(held), () => response.end(), logger);
    }
  }

  // What Azurite's context middleware sets.
  context(request, response, operation, named) {
    const begun = { startTime: new Date(), contextID: randomUUID(), isSecondary: false, operation: operation.code };
    const values = { ...named, ...begun, authenticationPath: request.path, accept: request.getHeader("accept") };
    return new this.Context({ [this.contextPath]: values }, this.contextPath, request, new HandlerResponse(response));
  }

  // A signature of the account that was accepted for an operation is accepted for it until it expires.
  async isAuthenticated(request, context) {
    const signed = accountSignature(request, context);
    if (signed !== undefined && Date.now() < this.accepted.get(signed)) return true;
    try {
      for (const authenticator of this.authenticators) {
        if ((await authenticator.validate(request, context)) !== true) continue;
        if (signed !== undefined) this.accept(signed, request);
        return true;
      }
    } catch {
      return false; // the long way refuses it with the same error
    }
    return false;
  }

  accept(signed, request) {
    if (this.accepted.size >= MAX_ACCEPTED) this.accepted.clear();
    this.accepted.set(signed, new Date(decodeURIComponent(request.getQuery("se"))).getTime());
  }

  async answer(made, operation, context, held) {
    const text = operation.write ? operation.write(made) : allOf(made.body);
    if (text === undefined && made.statusCode !== NO_CONTENT) {
      const response = this.azuriteResponse(held);
      await this.writeResponse(context, response, this.specifications[operation.code], made, logger);
      held.res.end();
      return;
    }
    const head = ["Server", this.server];
    for (const [name, value] of headersOf(made, made.contentType ?? held.type))
      if (value !== undefined) head.push(name, value);
    if (operation.write) head.push("content-type", "application/xml");
    held.res.writeHead(made.statusCode, head);
    held.res.end(text);
  }

  // What Azurite's writers go on with.
  azuriteResponse({ res, type }) {
    res.setHeader("Server", this.server);
    if (type !== undefined) res.setHeader("content-type", type);
    return new Response(res);
  }
}

// All that Azurite looks at to accept a signature of the account; undefined where there is another credential.
function accountSignature(request, context) {
  if (request.getQuery("ss") === undefined || request.getHeader("authorization") !== undefined) return undefined;
  const parts = SAS.map((name) => request.getQuery(name));
  return JSON.stringify([context.context.account, context.operation, request.getProtocol(), ...parts]);
}

// What a handler answers as a stream was whole before: a BufferStream keeps it, that of a batch gives it at once.
const allOf = (stream) => stream && (stream.buffer ?? stream.read());

// In the order of Azurite's.
function* headersOf(made, type) {
  yield ["content-type", type];
  yield ["x-ms-client-request-id", made.clientRequestId];
  yield ["x-ms-request-id", made.requestId];
  yield ["x-ms-version", made.version];
  yield ["date", made.date?.toUTCString()];
  yield ["x-ms-popreceipt", made.popReceipt];
  yield ["x-ms-time-next-visible", made.timeNextVisible?.toUTCString()];
  yield ["etag", made.eTag];
  yield ["x-ms-continuation-nextpartitionkey", made.xMsContinuationNextPartitionKey];
  yield ["x-ms-continuation-nextrowkey", made.xMsContinuationNextRowKey];
  yield ["preference-applied", made.preferenceApplied];
}

// The bytes of a body; undefined if the connection breaks before its end.
function read(message) {
  return new Promise((resolve) => {
    const parts = [];
    message.on("data", (part) => parts.push(part));
    message.on("end", () => resolve(Buffer.concat(parts)));
    message.on("error", () => resolve(undefined));
  });
}

// The whole number that a parameter holds, undefined without one, null for anything that Azurite has to judge.
function whole(request, name, least, most) {
  const text = request.getQuery(name);
  if (text === undefined) return undefined;
  return /^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : null;
}

// `make` turns what Azurite's factory has into a ShortWay; it is asked for where the requests can take one:
// a single account that is named in the path, any version, no log of accesses, no bearer tokens.
function shorten(service, make) {
  const factory = azurite(`./${service}RequestListenerFactory`).default.prototype;
  const { createRequestListener } = factory;
  factory.createRequestListener = function () {
    const longWay = createRequestListener.call(this);
    const isFit = this.disableProductStyleUrl && this.skipApiVersionCheck && !this.enableAccessLog && !this.oauth;
    if (!isFit) return longWay;
    const shortWay = make(longWay, this);
    return (message, response) => shortWay.listen(message, response);
  };
}

module.exports = { ShortWay, logger, shorten, whole };
