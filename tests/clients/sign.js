/* This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.
 *
 * What the real JavaScript clients sign and bind to.
 *
 * Reads a JSON array of jobs on stdin and prints the array of their results. `now` (ms) is the time
 * that a job happens at. `hawk` is "2" (what the clients of 2015 use) or "6" (those of 2018);
 * `client` is "4" or "11", of taskcluster-client.
 */
'use strict';

const fs = require('fs');
const { createRequire } = require('module');

const clients = version => require(`taskcluster-client-${version}`);
const hawks = {
  2: () => require('hawk'),
  6: () => createRequire(require.resolve('taskcluster-client-11'))('hawk'),
};
const clock = Date.now;

const ownReference = (client, name) =>
  require(`taskcluster-client-${client}/${client === '4' ? 'lib' : 'src'}/apis.js`)[name].reference;

const keyed = credentials => ({ ...credentials, algorithm: 'sha256' });

const jobs = {
  header: ({ hawk, url, method, credentials, options }) =>
    hawks[hawk]().client.header(url, method, { ...options, credentials: keyed(credentials) }).field,

  bewit: ({ hawk, url, credentials, options }) =>
    hawks[hawk]().uri.getBewit(url, { ...options, credentials: keyed(credentials) }),

  certificate: ({ client, options }) =>
    clients(client).createTemporaryCredentials({
      ...options,
      start: new Date(options.start),
      expiry: new Date(options.expiry),
    }),

  // the references that the client was built with
  reference: ({ client, name }) => ownReference(client, name),

  // what a client that is made from a reference binds a queue with: of each entry, with each of these keys
  bindings: ({ client, reference, keys }) => {
    const events = new (clients(client).createClient(reference, 'QueueEvents'))({
      credentials: {},
      ...(client === '4' ? {} : { rootUrl: 'http://queue.test' }),
    });
    return reference.entries.map(({ name }) =>
      keys.map(key => {
        try {
          const { exchange, routingKeyPattern } = events[name](key);
          return { exchange, routingKeyPattern };
        } catch (error) {
          return { refused: error.message };
        }
      }));
  },
};

(async () => {
  const results = [];
  for (const { job, now, ...rest } of JSON.parse(fs.readFileSync(0))) {
    Date.now = now ? () => now : clock;
    results.push(await jobs[job](rest));
  }
  process.stdout.write(JSON.stringify(results));
  process.exit();
})();
