'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { ServiceBusAdministrationClient } = require('@azure/service-bus');
const { until } = require('./env');

const rest = async (f, status, code) => {
  try {
    await f();
  } catch (err) {
    assert.equal(err.statusCode, status, err.message);
    if (code) assert.equal(err.code, code, err.message);
    return err;
  }
  return assert.fail(`succeeded, want ${status}`);
};

const wrongKey = (cs) => cs.replace(/SharedAccessKey=[^;]*/, 'SharedAccessKey=wrong');

// signature signs the queue's address as an application that hands out tokens does.
function signature(cs, queue, expiry) {
  const [, endpoint] = /Endpoint=sb:\/\/([^/;]+)/.exec(cs);
  const [, name] = /SharedAccessKeyName=([^;]*)/.exec(cs);
  const [, key] = /SharedAccessKey=([^;]*)/.exec(cs);
  const resource = encodeURIComponent(`sb://${endpoint}/${queue}`);
  const sig = crypto.createHmac('sha256', key).update(`${resource}\n${expiry}`).digest('base64');
  const token = `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(sig)}&se=${expiry}&skn=${name}`;
  const emulator = cs.includes('UseDevelopmentEmulator') ? ';UseDevelopmentEmulator=true' : '';
  return `Endpoint=sb://${endpoint}/;SharedAccessSignature=${token}${emulator}`;
}

module.exports = {
  async 'admin-queue'(e) {
    const a = e.admin(0);
    const name = e.name();
    const made = await a.createQueue(name, { lockDuration: 'PT45S', userMetadata: 'note' });
    assert.deepEqual([made.name, made.lockDuration, made.userMetadata], [name, 'PT45S', 'note']);
    const read = await e.admin(1).getQueue(name);
    assert.equal(read.lockDuration, 'PT45S');
    assert.equal(await e.admin(1).queueExists(name.toUpperCase()), true);
    read.maxDeliveryCount = 11;
    read.userMetadata = 'changed';
    const changed = await a.updateQueue(read);
    assert.deepEqual([changed.maxDeliveryCount, changed.userMetadata], [11, 'changed']);
    await a.deleteQueue(name);
    for (let i = 0; i < 3; i++) assert.equal(await e.admin(i).queueExists(name), false);
  },

  async 'admin-queue-options'(e) {
    const target = await e.queue();
    const options = {
      lockDuration: 'PT2M', maxSizeInMegabytes: 2048, requiresDuplicateDetection: true, requiresSession: false,
      defaultMessageTimeToLive: 'PT1H30M', deadLetteringOnMessageExpiration: true,
      duplicateDetectionHistoryTimeWindow: 'PT20M', maxDeliveryCount: 17, enableBatchedOperations: false,
      status: 'Active', userMetadata: 'ü <&> "note"', autoDeleteOnIdle: 'P1D', enablePartitioning: false,
      forwardDeadLetteredMessagesTo: target,
      authorizationRules: [{
        claimType: 'SharedAccessKey', accessRights: ['Send', 'Listen'], keyName: 'both',
        primaryKey: crypto.randomBytes(32).toString('base64'), secondaryKey: crypto.randomBytes(32).toString('base64'),
      }],
    };
    const q = await e.queue(options);
    const got = await e.admin(1).getQueue(q);
    for (const [key, want] of Object.entries(options)) {
      if (key === 'forwardDeadLetteredMessagesTo') assert.ok(got[key].endsWith(target), got[key]);
      else if (key === 'authorizationRules') {
        assert.deepEqual([...got[key][0].accessRights].sort(), ['Listen', 'Send']);
        assert.equal(got[key][0].primaryKey, want[0].primaryKey);
      } else assert.deepEqual(got[key], want, key);
    }
  },

  async 'admin-queue-list'(e) {
    const names = [];
    for (let i = 0; i < 5; i++) names.push(await e.queue());
    // Other scenarios create and delete meanwhile, which shifts pages; a quiet list holds them all.
    await until('every queue is listed', async () => {
      const all = new Set();
      for await (const page of e.admin().listQueues().byPage({ maxPageSize: 2 })) {
        assert.ok(page.length <= 2);
        for (const q of page) all.add(q.name);
      }
      return names.every((n) => all.has(n));
    });
  },

  async 'admin-conflict'(e) {
    const q = await e.queue();
    await rest(() => e.admin(1).createQueue(q), 409, 'MessageEntityAlreadyExistsError');
  },

  async 'admin-missing'(e) {
    const name = e.name();
    assert.equal(await e.admin().queueExists(name), false);
    await rest(() => e.admin().getQueue(name), 200, 'MessageEntityNotFoundError');
    await rest(() => e.admin().getQueueRuntimeProperties(name), 200, 'MessageEntityNotFoundError');
    await rest(() => e.admin().deleteQueue(name), 404, 'MessageEntityNotFoundError');
  },

  async 'admin-counts'(e) {
    const q = await e.queue();
    const s = e.client(0).createSender(q);
    await s.sendMessages(['a', 'b', 'c', 'd'].map((body) => ({ body })));
    await s.scheduleMessages({ body: 'later' }, new Date(Date.now() + 60_000));
    const r = e.client(1).createReceiver(q);
    await r.deadLetterMessage(await e.one(r));
    const got = await until('the counts', async () => {
      const p = await e.admin(2).getQueueRuntimeProperties(q);
      return p.activeMessageCount === 3 && p;
    });
    assert.deepEqual([got.deadLetterMessageCount, got.scheduledMessageCount, got.totalMessageCount], [1, 1, 5]);
    assert.deepEqual([got.transferMessageCount, got.transferDeadLetterMessageCount], [0, 0]);
    assert.ok(got.sizeInBytes > 0);
    assert.ok(got.createdAt instanceof Date && got.modifiedAt instanceof Date && got.accessedAt instanceof Date);
  },

  async 'admin-namespace'(e) {
    const p = await e.admin().getNamespaceProperties();
    assert.ok(p.name.length > 0);
    assert.ok(['Basic', 'Standard', 'Premium'].includes(p.messagingSku), p.messagingSku);
  },

  async 'admin-refused'(e) {
    const refused = [
      { lockDuration: 'PT6M' }, { lockDuration: 'PT1S' }, { maxDeliveryCount: 0 },
      { duplicateDetectionHistoryTimeWindow: 'P8D', requiresDuplicateDetection: true },
    ];
    for (const options of refused) {
      const err = await rest(() => e.admin().createQueue(e.name(), options), 400);
      assert.ok(err.message.length > 20, `no reason for ${JSON.stringify(options)}: ${err.message}`);
    }
    const q = await e.queue();
    const p = await e.admin().getQueue(q);
    await rest(() => e.admin().updateQueue({ ...p, requiresSession: true }), 400);
  },

  async 'admin-names'(e) {
    for (const tail of ['/a/b', '.x-y_z', `-${'n'.repeat(150)}`]) {
      const name = e.name() + tail;
      await e.admin(0).createQueue(name);
      e.later(() => e.admin(0).deleteQueue(name));
      assert.equal((await e.admin(1).getQueue(name)).name, name);
      await e.client(0).createSender(name).sendMessages({ body: tail });
      const r = e.client(1).createReceiver(name);
      const m = await e.one(r);
      assert.equal(m.body, tail);
      await r.completeMessage(m);
      await r.peekMessages(1);
    }
  },

  async 'admin-disabled'(e) {
    const q = await e.queue();
    const a = e.admin();
    const set = async (status) => a.updateQueue({ ...await a.getQueue(q), status });
    const c = e.client(1);
    await c.createSender(q).sendMessages({ body: 'before' });
    await set('Disabled');
    await e.fails(() => c.createSender(q).sendMessages({ body: 'x' }), 'MessagingEntityDisabled');
    await e.fails(() => c.createReceiver(q).receiveMessages(1, { maxWaitTimeInMs: 3000 }), 'MessagingEntityDisabled');
    await set('SendDisabled');
    await e.fails(() => c.createSender(q).sendMessages({ body: 'x' }), 'MessagingEntityDisabled');
    const r = c.createReceiver(q);
    await e.complete(r, await e.one(r));
    await set('Active');
    await c.createSender(q).sendMessages({ body: 'after' });
    await e.complete(r, await e.one(r));
  },

  async 'auth-wrong-key'(e) {
    const q = await e.queue();
    const c = e.clientFor(wrongKey(e.dataString()));
    await e.fails(() => c.createSender(q).sendMessages({ body: 'x' }), 'UnauthorizedAccess');
    await e.fails(() => c.createReceiver(q).receiveMessages(1, { maxWaitTimeInMs: 3000 }), 'UnauthorizedAccess');
  },

  async 'auth-signature'(e) {
    const q = await e.queue();
    const now = Math.floor(Date.now() / 1000);
    await e.clientFor(signature(e.dataString(), q, now + 3600)).createSender(q).sendMessages({ body: 'signed' });
    const r = e.client().createReceiver(q);
    await e.complete(r, await e.one(r));
    const old = e.clientFor(signature(e.dataString(), q, now - 3600));
    await e.fails(() => old.createSender(q).sendMessages({ body: 'stale' }), 'UnauthorizedAccess');
  },

  async 'auth-admin'(e) {
    const a = new ServiceBusAdministrationClient(wrongKey(e.adminString()), { retryOptions: { maxRetries: 0 } });
    await rest(() => a.createQueue(e.name()), 401);
  },
};
