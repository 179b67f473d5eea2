/* This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.
 *
 * Lets Python tests call a real JavaScript client: `node call.js 4`, `11` or `87`.
 *
 * Reads one line of JSON for each job from stdin: `{job, options, method, args[, query]}`. Prints one line of JSON for
 * each: `{answer}`, or `{refused: {status, body}}` if the server answered with an error. Ends when stdin ends.
 * `options` are the client's options, and `method` is a method of the queue.
 */
'use strict';

const readline = require('readline');
const { Readable, Writable } = require('stream');

// not the whole package, because its other half, which signs, needs packages that are not installed
const { Client: BlobClient } = require('remotely-signed-s3/lib/client');

const jobs = {
  call: ({ queue, method, args, query }) => queue[method](...args, ...(query ? [query] : [])),

  // the HTTP method and the route of each method that the newest client knows
  methods: async () => {
    const { default: apis } = await import('taskcluster-client-87/src/apis.js');
    const { entries } = apis.Queue.reference;
    return Object.fromEntries(entries.filter(({ type }) => type === 'function')
      .map(({ name, method, route }) => [name, [method.toUpperCase(), route]]));
  },

  url: ({ queue, method, args }) => queue.buildUrl(queue[method], ...args),

  signedUrl: ({ queue, method, args }) => queue.buildSignedUrl(queue[method], ...args),

  // creates an artifact of the storage type object, from createArtifact to finishArtifact; the content is base64
  putObject: async ({ client, queue, options, args: [taskId, runId, name, body, content] }) => {
    const { credentials, storageType, ...created } = await queue.createArtifact(taskId, runId, name, body);
    const data = Buffer.from(content, 'base64');
    await client.upload({
      ...created,
      contentType: body.contentType,
      contentLength: data.length,
      object: new client.Object({ ...options, credentials }),
      streamFactory: async () => Readable.from([data], { objectMode: false }),
    });
    await queue.finishArtifact(taskId, runId, name, { uploadId: created.uploadId });
  },

  // the content of an artifact in base64 and its type, or the reason of an artifact of the type error
  download: async ({ client, queue, args: [taskId, runId, name] }) => {
    const chunks = [];
    const streamFactory = async () => new Writable({
      write: (chunk, encoding, done) => { chunks.push(chunk); done(); },
    });
    try {
      const contentType = await client.downloadArtifact({
        taskId, runId: runId === null ? undefined : runId, name, queue, streamFactory,
      });
      return { content: Buffer.concat(chunks).toString('base64'), contentType };
    } catch (error) {
      if (!error.reason) {
        throw error;
      }
      return { reason: error.reason };
    }
  },

  // uploads a file as an artifact of the storage type blob, like the workers of 2018; answers its ETags
  upload: async ({ queue, args: [taskId, runId, name, body, file] }) => {
    const blobs = new BlobClient({ partsize: file.partSize });
    const upload = await blobs.prepareUpload({
      filename: file.name,
      compression: file.compression,
      compressionScratchFile: file.compression && `${file.name}.${file.compression}`,
      ...(file.partSize ? { forceMP: true } : { forceSP: true }),
    });
    const { requests } = await queue.createArtifact(taskId, runId, name, {
      ...body,
      storageType: 'blob',
      contentSha256: upload.sha256,
      contentLength: upload.size,
      ...(upload.contentEncoding && {
        contentEncoding: upload.contentEncoding,
        transferSha256: upload.transferSha256,
        transferLength: upload.transferSize,
      }),
      ...(upload.parts && { parts: upload.parts.map(({ sha256, size }) => ({ sha256, size })) }),
    });
    const { etags } = await blobs.runUpload(requests, upload);
    await queue.completeArtifact(taskId, runId, name, { etags });
    return etags;
  },
};

(async () => {
  const name = `taskcluster-client-${process.argv[2]}`;
  // the newest client is an ES module, which the Node.js of the older clients cannot import
  const client = name.endsWith('-87') ? (await import(name)).default : require(name);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { job, options, ...rest } = JSON.parse(line);
    let result;
    try {
      const queue = new client.Queue(options);
      result = { answer: await jobs[job]({ client, queue, options, ...rest }) };
    } catch (error) {
      if (!error.statusCode) {
        throw error;
      }
      result = { refused: { status: error.statusCode, body: error.body } };
    }
    process.stdout.write(`${JSON.stringify(result)}\n`);
  }
  process.exit();
})();
