/* A small worker, as docker-worker was in 2017: it polls Azure queues by signed URLs, claims, and deletes the message.
 *
 * The queue and the worker's credentials are in TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
 * TASKCLUSTER_ACCESS_TOKEN. It does not reclaim: a command must end within one claim.
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

  /* Claim and run a task; its taskId, or null without a task. */
  async runNext() {
    const claim = await this.claimNext();
    if (!claim) {
      return null;
    }
    await this.run(claim);
    return claim.status.taskId;
  }

  /* The answer of claimTask for the first message that can be claimed, or null. */
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

  /* At most one message, hidden from other workers for some minutes. */
  async poll({ signedPollUrl }) {
    const answer = await fetch(`${signedPollUrl}&numofmessages=1`);
    if (answer.status === 403) { // the URLs have expired: the next poll fetches others
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
        return null; // the message stays, and is visible again in some minutes
      }
    }
    await fetch(signedDeleteUrl
      .replace('{{messageId}}', encodeURIComponent(MessageId))
      .replace('{{popReceipt}}', encodeURIComponent(PopReceipt)), { method: 'DELETE' });
    return claim;
  }

  /* Run the task's command and report what came of it. */
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
      if (error.statusCode !== 409) { // the run is no longer this worker's
        throw error;
      }
    }
  }
}

module.exports = { Worker };
