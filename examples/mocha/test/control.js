/* Calls the control API of the queue that `legacy-queue test` started, and creates tasks for the tests. */
'use strict';

const hawk = require('hawk');
const { Queue, fromNow, slugid } = require('taskcluster-client');

const { TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID, TASKCLUSTER_ACCESS_TOKEN } = process.env;
const queue = new Queue();

/* Returns the answer of a call under /control/v1: `control('POST', 'clock', {advance: '21m'})`. */
const control = async (method, path, body) => {
  const url = `${TASKCLUSTER_ROOT_URL}/control/v1/${path}`;
  const { field } = hawk.client.header(url, method, {
    credentials: { id: TASKCLUSTER_CLIENT_ID, key: TASKCLUSTER_ACCESS_TOKEN, algorithm: 'sha256' },
  });
  const answer = await fetch(url, {
    method,
    headers: { authorization: field, ...(body && { 'content-type': 'application/json' }) },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) {
    throw new Error(`${method} ${path} was answered with ${answer.status}: ${text}`);
  }
  return JSON.parse(text);
};

/* Returns the status of each answer that this endpoint has given, in order. */
const asked = async endpoint => {
  const { requests } = await control('GET', 'requests');
  return requests.filter(request => request.endpoint === endpoint).map(({ status }) => status);
};

const createTask = async payload => {
  const taskId = slugid();
  await queue.createTask(taskId, {
    provisionerId: 'examples',
    workerType: 'builds',
    created: fromNow('0 seconds'),
    deadline: fromNow('1 day'),
    payload,
    metadata: { name: 'a build', description: 'a build', owner: 'me@example.com', source: 'https://example.com' },
  });
  return taskId;
};

/* Returns the state of each run. For an exception, returns its reason instead. */
const outcome = async taskId => {
  const { status: { runs } } = await queue.status(taskId);
  return runs.map(({ state, reasonResolved }) => state === 'exception' ? reasonResolved : state);
};

module.exports = { control, asked, createTask, outcome };
