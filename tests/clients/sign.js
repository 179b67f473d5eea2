/* This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.
 *
 * Answers what the real JavaScript clients sign, and how they bind to exchanges.
 *
 * Reads a JSON array of jobs from stdin and prints the array of their results. `now` (ms) is the time of a job.
 * `hawk` is "2", which the clients of 2015 use, or "6", which the clients of 2018 use. `client` is "4" or "11",
 * a version of taskcluster-client.
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

  // the references that the client was generated from
  reference: ({ client, name }) => ownReference(client, name),

  // how a client made from a reference binds a queue, for each entry and with each of these keys
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
