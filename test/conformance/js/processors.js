'use strict';

const assert = require('node:assert/strict');
const Long = require('long');
const { atLeast, sleep, until } = require('./env');

// run subscribes and collects what the handlers saw and what went wrong.
function run(receiver, handler, options) {
  const p = { seen: [], errors: [] };
  p.subscription = receiver.subscribe({
    async processMessage(m) {
      p.seen.push(m);
      await handler(m, p);
    },
    async processError(args) { p.errors.push(args.error); },
  }, options);
  return p;
}

async function filled(e, n, options) {
  const q = await e.queue(options);
  await e.client(0).createSender(q).sendMessages(Array.from({ length: n }, (_, i) => ({ body: `m${i}` })));
  return q;
}

const nothing = async () => {};

// lostAtWork has a handler work until its message is delivered again, and says how many milliseconds
// that took. What it returns from then is not completed, and the processor goes on.
async function lostAtWork(e, q, r, code) {
  let began;
  let took = 0;
  const p = run(r, async (m) => {
    if (m.deliveryCount > 0 || m.body === 'next') return;
    began = Date.now();
    await until('the message is delivered again', () => p.seen.length === 2);
    took = Date.now() - began;
  }, { maxConcurrentCalls: 2 });
  await until('the loss is told', () => p.errors.length > 0);
  assert.deepEqual(p.errors.map((err) => err.code), [code]);
  await e.client(0).createSender(q).sendMessages({ body: 'next' });
  await until('the next message', () => p.seen.length === 3);
  assert.deepEqual(p.seen.map((m) => [m.body, m.deliveryCount]), [['m0', 0], ['m0', 1], ['next', 0]]);
  await until('all are completed', async () => (
    await e.client(0).createReceiver(q).peekMessages(1, { fromSequenceNumber: Long.ONE })).length === 0);
  await p.subscription.close();
  return took;
}

module.exports = {
  async 'process-complete'(e) {
    const q = await filled(e, 10);
    const r = e.client(1).createReceiver(q);
    const p = run(r, nothing);
    await until('ten messages', () => p.seen.length === 10);
    assert.deepEqual(e.texts(p.seen), Array.from({ length: 10 }, (_, i) => `m${i}`));
    await p.subscription.close();
    await r.close();
    assert.deepEqual(p.errors, []);
    const left = e.client(0).createReceiver(q);
    await e.none(left);
    assert.deepEqual(await left.peekMessages(1), []);
  },

  async 'process-abandon'(e) {
    const q = await filled(e, 1);
    const r = e.client(1).createReceiver(q);
    const p = run(r, async (m) => { if (m.deliveryCount < 2) throw new Error('again'); });
    await until('three deliveries', () => p.seen.length === 3);
    assert.deepEqual(p.seen.map((m) => m.deliveryCount), [0, 1, 2]);
    assert.equal(p.errors.length, 2);
    await p.subscription.close();
    await until('the message is gone', async () => (
      await e.client(0).createReceiver(q).peekMessages(1)).length === 0);
  },

  async 'process-manual'(e) {
    const q = await filled(e, 3);
    const r = e.client(1).createReceiver(q);
    const p = run(r, async (m) => {
      if (m.body === 'm1') await r.deadLetterMessage(m, { deadLetterReason: 'by hand' });
      else await r.completeMessage(m);
    }, { autoCompleteMessages: false });
    await until('three messages', () => p.seen.length === 3);
    await p.subscription.close();
    const d = e.client(0).createReceiver(q, { subQueueType: 'deadLetter' });
    assert.equal((await e.one(d)).deadLetterReason, 'by hand');
    assert.deepEqual(p.errors, []);
  },

  async 'process-concurrent'(e) {
    const q = await filled(e, 12);
    const r = e.client(1).createReceiver(q);
    let now = 0;
    let most = 0;
    const p = run(r, async () => {
      most = Math.max(most, ++now);
      await sleep(200);
      now--;
    }, { maxConcurrentCalls: 4 });
    await until('twelve messages', () => p.seen.length === 12 && now === 0);
    assert.equal(most, 4);
    await p.subscription.close();
    assert.deepEqual(p.errors, []);
  },

  async 'process-renew'(e) {
    const q = await filled(e, 1, { lockDuration: 'PT5S' });
    const r = e.client(1).createReceiver(q, { maxAutoLockRenewalDurationInMs: 60_000 });
    let done = false;
    const p = run(r, async () => {
      await sleep(12_000); // more than two locks
      done = true;
    });
    await until('the handler began', () => p.seen.length === 1);
    const other = e.client(0).createReceiver(q);
    assert.deepEqual(await other.receiveMessages(1, { maxWaitTimeInMs: 11_000 }), []);
    await until('the handler is done', () => done);
    await until('completed', async () => (await other.peekMessages(1, { fromSequenceNumber: Long.ZERO })).length === 0);
    await p.subscription.close();
    assert.deepEqual(p.errors, []);
  },

  async 'process-renew-limit'(e) {
    const q = await filled(e, 1, { lockDuration: 'PT5S' });
    const r = e.client(1).createReceiver(q, { maxAutoLockRenewalDurationInMs: 8_000 });
    const took = await lostAtWork(e, q, r, 'MessageLockLost');
    assert.ok(took > 6_500, `a lock of 5 s that is renewed for 8 s was lost after ${took} ms`);
  },

  async 'process-lost'(e) {
    const q = await filled(e, 1, { lockDuration: 'PT5S' });
    const r = e.client(1).createReceiver(q, { maxAutoLockRenewalDurationInMs: 0 });
    await lostAtWork(e, q, r, 'MessageLockLost');
  },

  async 'process-stop'(e) {
    const q = await filled(e, 2);
    const r = e.client(1).createReceiver(q);
    const p = run(r, nothing);
    await until('two messages', () => p.seen.length === 2);
    await p.subscription.close();
    await e.client(0).createSender(q).sendMessages({ body: 'after' });
    const other = e.client(0).createReceiver(q);
    const m = await e.one(other);
    assert.deepEqual([m.body, m.deliveryCount], ['after', 0]);
    await other.completeMessage(m);
    assert.equal(p.seen.length, 2);
  },

  async 'process-error'(e) {
    const r = e.client().createReceiver(e.name());
    const p = run(r, nothing);
    await until('an error', () => p.errors.length > 0);
    assert.equal(p.errors[0].code, 'MessagingEntityNotFound');
    await p.subscription.close();
  },

  async 'process-session'(e) {
    const q = await e.sessionQueue();
    await e.client(0).createSender(q).sendMessages(
      Array.from({ length: 10 }, (_, i) => ({ body: `m${i}`, sessionId: 'S' })));
    const r = await e.client(1).acceptSession(q, 'S');
    const p = run(r, nothing);
    await until('ten messages', () => p.seen.length === 10);
    assert.deepEqual(e.texts(p.seen), Array.from({ length: 10 }, (_, i) => `m${i}`));
    await until('all are completed', async () => (await r.peekMessages(1, { fromSequenceNumber: Long.ONE })).length === 0);
    assert.deepEqual(p.errors, []); // a processor that is closed at work tells of that, too
    await p.subscription.close();
    await r.close();
    await e.none(await e.client(0).acceptSession(q, 'S'));
  },

  async 'process-session-renew'(e) {
    const q = await e.sessionQueue({ lockDuration: 'PT5S' });
    await e.client(0).createSender(q).sendMessages({ body: 'x', sessionId: 'S' });
    const r = await e.client(1).acceptSession(q, 'S', { maxAutoLockRenewalDurationInMs: 60_000 });
    let done = false;
    const p = run(r, async () => {
      await sleep(12_000); // more than two locks
      done = true;
    });
    await until('the handler is done', () => done);
    await sleep(500); // the library completes behind the handler
    await until('all are completed', async () => (await r.peekMessages(1, { fromSequenceNumber: Long.ONE })).length === 0);
    assert.deepEqual(p.errors, []); // a processor that is closed at work tells of that, too
    await p.subscription.close();
    await r.close();
    await e.none(await e.client(0).acceptSession(q, 'S'));
  },

  async 'process-session-lost'(e) {
    const q = await e.sessionQueue({ lockDuration: 'PT5S' });
    await e.client(0).createSender(q).sendMessages({ body: 'x', sessionId: 'S' });
    const r = await e.client(1).acceptSession(q, 'S', { maxAutoLockRenewalDurationInMs: 0 });
    let release;
    const held = new Promise((done) => { release = done; });
    const p = run(r, () => held);
    await until('the handler began', () => p.seen.length === 1);
    const other = await until('the session is free', async () => {
      try {
        return await e.client(0).acceptSession(q, 'S');
      } catch (err) {
        if (atLeast('7.9.1')) assert.equal(err.code, 'SessionCannotBeLocked');
        return null;
      }
    });
    release();
    await until('the loss is told', () => p.errors.length > 0);
    assert.ok(p.errors.every((err) => err.code === 'SessionLockLost'), p.errors.join('; '));
    const m = await e.one(other);
    assert.deepEqual([m.body, m.deliveryCount], ['x', 1]);
    await other.completeMessage(m);
  },

  async 'process-sessions'(e) {
    const q = await e.sessionQueue();
    const s = e.client(0).createSender(q);
    const ids = ['A', 'B', 'C'];
    for (const sessionId of ids) await s.sendMessages(['1', '2', '3'].map((body) => ({ sessionId, body })));
    const c = e.client(1);
    const all = await Promise.all(ids.map(async () => {
      const r = await c.acceptNextSession(q);
      const p = run(r, nothing);
      await until('three messages', () => p.seen.length === 3);
      assert.deepEqual(p.seen.map((m) => `${m.sessionId}${m.body}`), ['1', '2', '3'].map((b) => r.sessionId + b));
      assert.deepEqual(p.errors, []);
      return r.sessionId;
    }));
    assert.deepEqual(all.sort(), ids);
  },
};
