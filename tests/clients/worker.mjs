/* This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.
 *
 * A worker on the newest npm client: `node worker.mjs P/W GROUP ID`, until it is ended. It does what worker.py does.
 */
import { spawnSync } from 'node:child_process';
import taskcluster from 'taskcluster-client-87';

const LOG = 'public/logs/live.log';
const [taskQueueId, workerGroup, workerId] = process.argv.slice(2);
const own = taskcluster.fromEnvVars();

const say = (event, { status: { taskId }, runId }) =>
  process.stdout.write(`${JSON.stringify({ event, taskId, runId })}\n`);

const run = async claim => {
  const { status: { taskId }, runId, task: { payload: { command: [program, ...words] } } } = claim;
  let queue = new taskcluster.Queue({ rootUrl: own.rootUrl, credentials: claim.credentials });
  say('claim', claim);
  const ended = spawnSync(program, words);
  const { putUrl } = await queue.createArtifact(taskId, runId, LOG, {
    storageType: 's3',
    contentType: 'text/plain',
    expires: taskcluster.fromNowJSON('1 hour'),
  });
  const upload = await fetch(putUrl, { method: 'PUT', body: ended.stdout, headers: { 'content-type': 'text/plain' } });
  if (!upload.ok) {
    throw new Error(`the upload was answered with ${upload.status}`);
  }
  say('upload', claim);
  const { credentials } = await queue.reclaimTask(taskId, runId);
  say('reclaim', claim);
  queue = new taskcluster.Queue({ rootUrl: own.rootUrl, credentials });
  await (ended.status ? queue.reportFailed(taskId, runId) : queue.reportCompleted(taskId, runId));
  say('report', claim);
};

for (;;) {
  const queue = new taskcluster.Queue(own);
  const { tasks } = await queue.claimWork(taskQueueId, { workerGroup, workerId, tasks: 1 });
  for (const claim of tasks) {
    await run(claim);
  }
}
