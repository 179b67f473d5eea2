// Put, receive, update and delete a message the short way.
"use strict";
const azurite = require("./azurite");
const { ShortWay, logger, shorten, whole } = require("./short_way");
const part = (name) => azurite(`./queue/${name}`).default;
const { Operation } = azurite("./queue/generated/artifacts/operation");
const { DEFAULT_QUEUE_CONTEXT_PATH } = azurite("./queue/utils/constants");
const { isValidName, nameValidateCode } = azurite("./queue/utils/utils");
const AccountSASAuthenticator = part("authentication/AccountSASAuthenticator");
const MessageIdHandler = part("handlers/MessageIdHandler");
const MessagesHandler = part("handlers/MessagesHandler");
const QueueSASAuthenticator = part("authentication/QueueSASAuthenticator");
const QueueSharedKeyAuthenticator = part("authentication/QueueSharedKeyAuthenticator");

const WEEK = 604800; // seconds
const MAX_COUNT = 32; // messages of one receive
const MAX_TTL = 999999999; // seconds

// The one form of a message that the clients in use send. Any other is for Azurite's XML parser.
const BODY =
  /^(?:<\?xml[^<>?]*\?>)?[ \n\r\t]*<QueueMessage>[ \n\r\t]*<MessageText>([^<]*)<\/MessageText>[ \n\r\t]*<\/QueueMessage>[ \n\r\t]*$/;
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'" };
const isPlain = (text) => !/[^\t\n\r\x20-\ud7ff\ue000-\ufffd]/.test(text) && /[^\s]/.test(text);

function messageIn(body) {
  const raw = BODY.exec(body)?.[1];
  if (raw === undefined || !isPlain(raw) || raw.includes("]]>")) return undefined;
  const entities = raw.match(/&[^;]*;?/g) ?? [];
  if (!entities.every((entity) => Object.hasOwn(ENTITIES, entity))) return undefined;
  return { messageText: raw.replace(/&[^;]*;/g, (entity) => ENTITIES[entity]) };
}

const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;" };
const escaped = (text) => text.replace(/[&<>\r]/g, (character) => ESCAPES[character]);

function list(messages, write) {
  if (messages.length === 0) return `${XML}<QueueMessagesList/>`;
  return `${XML}<QueueMessagesList>${messages.map((one) => `<QueueMessage>${write(one)}</QueueMessage>`).join("")}</QueueMessagesList>`;
}

const putMessage = (message) =>
  `<MessageId>${message.messageId}</MessageId>` +
  `<InsertionTime>${message.insertionTime.toUTCString()}</InsertionTime>` +
  `<ExpirationTime>${message.expirationTime.toUTCString()}</ExpirationTime>` +
  `<PopReceipt>${message.popReceipt}</PopReceipt>` +
  `<TimeNextVisible>${message.timeNextVisible.toUTCString()}</TimeNextVisible>`;

const receivedMessage = (message) =>
  `${putMessage(message)}<DequeueCount>${message.dequeueCount}</DequeueCount>` +
  `<MessageText>${escaped(message.messageText)}</MessageText>`;

// The options that Azurite's reader would make; undefined if one of them is for Azurite to judge.
function options(request, numbers) {
  const read = { requestId: request.getHeader("x-ms-client-request-id"), ...numbers };
  return Object.values(read).includes(null) ? undefined : read;
}

class QueueShortWay extends ShortWay {
  constructor(longWay, { accountDataStore, extentStore, metadataStore }) {
    super("queue", longWay, {
      authenticators: [
        new QueueSharedKeyAuthenticator(accountDataStore, logger),
        new AccountSASAuthenticator(accountDataStore, logger),
        new QueueSASAuthenticator(accountDataStore, metadataStore, logger),
      ],
      Context: part("context/QueueStorageContext"),
      contextPath: DEFAULT_QUEUE_CONTEXT_PATH,
      parameters: ["visibilitytimeout", "messagettl", "numofmessages", "popreceipt"],
    });
    const messages = new MessagesHandler(metadataStore, extentStore, logger);
    const message = new MessageIdHandler(metadataStore, extentStore, logger);
    this.ofQueue = { POST: put(messages), GET: receive(messages) };
    this.ofMessage = { PUT: update(message), DELETE: remove(message) };
  }

  // Of the path /account/queue/messages[/messageId]; undefined for the long way.
  target(method, [account, queue, word, messageId, more]) {
    const isKnown = word === "messages" && messageId !== "" && more === undefined && !account.endsWith("-secondary");
    const operation = (messageId === undefined ? this.ofQueue : this.ofMessage)[method];
    if (!isKnown || operation === undefined || isValidName(queue) !== nameValidateCode.valid) return undefined;
    return { operation, named: { account, queue, message: word, messageId } };
  }
}

const put = (handler) => ({
  code: Operation.Messages_Enqueue,
  options: (request) =>
    options(request, {
      visibilitytimeout: whole(request, "visibilitytimeout", 0, WEEK),
      messageTimeToLive: request.getQuery("messagettl") === "-1" ? -1 : whole(request, "messagettl", 1, MAX_TTL),
    }),
  readBody: messageIn,
  handle: (read, body, context) => handler.enqueue(body, read, context),
  write: (made) => list(made, putMessage),
});

const receive = (handler) => ({
  code: Operation.Messages_Dequeue,
  options: (request) =>
    options(request, {
      visibilitytimeout: whole(request, "visibilitytimeout", 1, WEEK),
      numberOfMessages: whole(request, "numofmessages", 1, MAX_COUNT),
    }),
  handle: (read, _, context) => handler.dequeue(read, context),
  write: (made) => (made.every((message) => isPlain(message.messageText)) ? list(made, receivedMessage) : undefined),
});

const update = (handler) => ({
  code: Operation.MessageId_Update,
  options: (request) => {
    const visibilitytimeout = whole(request, "visibilitytimeout", 0, WEEK);
    if (!request.getQuery("popreceipt") || visibilitytimeout === undefined) return undefined;
    return options(request, { visibilitytimeout });
  },
  readBody: (body) => (body === "" ? { messageText: undefined } : messageIn(body)),
  handle: ({ visibilitytimeout, requestId }, body, context) =>
    handler.update(body, context.request.getQuery("popreceipt"), visibilitytimeout, { requestId }, context),
});

const remove = (handler) => ({
  code: Operation.MessageId_Delete,
  options: (request) => (request.getQuery("popreceipt") ? options(request, {}) : undefined),
  handle: (read, _, context) => handler.delete(context.request.getQuery("popreceipt"), read, context),
});

shorten("queue/Queue", (longWay, factory) => new QueueShortWay(longWay, factory));
