/* This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.
 *
 * A real JavaScript client, called from elsewhere: `node call.js 4` or `node call.js 11`.
 *
 * Reads a line of JSON for each call on stdin, `{options, call, args}`, and prints a line of JSON for each:
 * `{answer}`, or `{refused: {status, code}}` for an error that the server answered with. Ends with stdin.
 */
'use strict';

const readline = require('readline');

const client = require(`taskcluster-client-${process.argv[2]}`);

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { options, call, args } = JSON.parse(line);
    let result;
    try {
      const queue = new client.Queue(options);
      result = { answer: await queue[call](...args) };
    } catch (error) {
      if (!error.statusCode) {
        throw error;
      }
      result = { refused: { status: error.statusCode, code: error.code } };
    }
    process.stdout.write(`${JSON.stringify(result)}\n`);
  }
  process.exit();
})();
