/* A small worker that works as docker-worker did in 2017: it polls Azure queues with signed URLs, claims, and deletes the message.
 *
 * It reads the queue and its credentials from TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
 * TASKCLUSTER_ACCESS_TOKEN. It does not reclaim, so a command must end within one claim.
 */
'use strict';

const { spawnSync } = require('child_process');
const { Queue } = require('taskcluster-client');
const { parseStringPromise } = require('xml2js');

class Worker {
  /* `options`: provisionerId, workerType, workerGroup, workerId */
  constructor(options) {
    this.options = options;
    this.queue = new Queue();
    this.urls = null;
  }

  /* Claims and runs one task. Returns its taskId, or null if there is no task. */
  async runNext() {
    const claim = await this.claimNext();
    if (!claim) {
      return null;
    }
    await this.run(claim);
    return claim.status.taskId;
  }

  /* Claims the first task that it can. Returns the answer of claimTask, or null if there is no task. */
  async claimNext() {
    if (!this.urls) {
      const { provisionerId, workerType } = this.options;
      this.urls = (await this.queue.pollTaskUrls(provisionerId, workerType)).queues;
    }
    for (const urls of this.urls) { // the highest priority first
      for (const message of await this.poll(urls)) {
        const claim = await this.claim(message, urls);
        if (claim) {
          return claim;
        }
      }
    }
    return null;
  }

  /* Returns at most one message. Other workers do not see it for some minutes. */
  async poll({ signedPollUrl }) {
    const answer = await fetch(`${signedPollUrl}&numofmessages=1`);
    if (answer.status === 403) { // the URLs have expired: the next poll fetches new ones
      this.urls = null;
    }
    if (!answer.ok) {
      return [];
    }
    const { QueueMessagesList } = await parseStringPromise(await answer.text(), { explicitArray: false });
    return [QueueMessagesList.QueueMessage || []].flat();
  }

  async claim({ MessageId, PopReceipt, MessageText }, { signedDeleteUrl }) {
    const { taskId, runId } = JSON.parse(Buffer.from(MessageText, 'base64'));
    const { workerGroup, workerId } = this.options;
    let claim = null;
    try {
      claim = await this.queue.claimTask(taskId, runId, { workerGroup, workerId });
    } catch (error) {
      if (!(error.statusCode < 500)) {
        return null; // keep the message: it becomes visible again in some minutes, and a worker tries again
      }
    }
    await fetch(signedDeleteUrl
      .replace('{{messageId}}', encodeURIComponent(MessageId))
      .replace('{{popReceipt}}', encodeURIComponent(PopReceipt)), { method: 'DELETE' });
    return claim;
  }

  /* Runs the task's command and reports its result. */
  async run({ credentials, runId, status: { taskId }, task: { payload: { command } } }) {
    const queue = new Queue({ credentials });
    try {
      if (!Array.isArray(command) || !command.length || !command.every(word => typeof word === 'string')) {
        await queue.reportException(taskId, runId, { reason: 'malformed-payload' });
      } else if (spawnSync(command[0], command.slice(1)).status) {
        await queue.reportFailed(taskId, runId);
      } else {
        await queue.reportCompleted(taskId, runId);
      }
    } catch (error) {
      if (error.statusCode !== 409) { // 409: another worker has the run now, or it is resolved
        throw error;
      }
    }
  }
}

module.exports = { Worker };
