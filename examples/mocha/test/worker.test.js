'use strict';

const assert = require('assert');
const { spawnSync } = require('child_process');
const { Worker } = require('../worker');
const { control, asked, createTask, outcome } = require('./control');

const worker = workerId => new Worker({
  provisionerId: 'examples',
  workerType: 'builds',
  workerGroup: 'examples',
  workerId,
});

describe('a worker', () => {
  beforeEach(() => control('POST', 'reset'));

  afterEach(function () {
    if (this.currentTest.state === 'failed') {
      spawnSync('legacy-queue', ['requests'], { stdio: 'inherit' }); // before the next test resets the queue
    }
  });

  it('completes a task', async () => {
    const taskId = await createTask({ command: ['true'] });
    assert.equal(await worker('one').runNext(), taskId);
    assert.deepEqual(await outcome(taskId), ['completed']);
    assert.equal(await worker('one').runNext(), null);
  });

  it('reports a payload without a command as malformed', async () => {
    const taskId = await createTask({ image: 'debian' });
    await worker('one').runNext();
    assert.deepEqual(await outcome(taskId), ['malformed-payload']);
  });

  it('deletes the message of a task that another worker has claimed', async () => {
    await createTask({ command: ['true'] });
    await control('POST', 'faults', { endpoint: 'azure.receive', double: true, times: 1 });
    assert(await worker('one').claimNext());
    assert.equal(await worker('two').claimNext(), null);
    assert.deepEqual(await asked('claimTask'), [200, 409]);
    assert.equal((await asked('azure.delete')).pop(), 204);
  });

  it('runs the task of a dead worker', async () => {
    const taskId = await createTask({ command: ['true'] });
    const dead = worker('dead');
    const claim = await dead.claimNext();
    await control('POST', 'clock', { advance: '21m' });
    assert.equal(await worker('alive').runNext(), taskId);
    await dead.run(claim); // it was only slow, so its report is refused
    assert.deepEqual(await outcome(taskId), ['claim-expired', 'completed']);
    assert.deepEqual(await asked('reportCompleted'), [200, 409]);
  });

  it('is not harmed by a stale receipt', async () => {
    const taskId = await createTask({ command: ['true'] });
    await control('POST', 'faults', { endpoint: 'azure.receive', stale: true, times: 1 });
    assert.equal(await worker('one').runNext(), taskId);
    assert.deepEqual(await outcome(taskId), ['completed']);
  });

  it('repeats a claim that is answered with 503', async () => {
    const taskId = await createTask({ command: ['true'] });
    await control('POST', 'faults', { endpoint: 'claimTask', status: 503, times: 1 });
    assert.equal(await worker('one').runNext(), taskId);
    assert.deepEqual(await asked('claimTask'), [503, 200]);
  });

  it('fetches new URLs when the old ones have expired', async () => {
    const taskId = await createTask({ command: ['true'] });
    await control('POST', 'faults', { endpoint: 'pollTaskUrls', sas: 'expired', times: 1 });
    const one = worker('one');
    assert.equal(await one.runNext(), null);
    assert.equal(await one.runNext(), taskId);
    assert.deepEqual(await asked('pollTaskUrls'), [200, 200]);
  });
});
