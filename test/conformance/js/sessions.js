'use strict';

const assert = require('node:assert/strict');
const Long = require('long');
const { sleep } = require('./env');

const inSession = (sessionId, ...bodies) => bodies.map((body) => ({ sessionId, body }));

async function filled(e, options, ...bodies) {
  const q = await e.sessionQueue(options);
  await e.client(0).createSender(q).sendMessages(inSession('S', ...bodies));
  return q;
}

module.exports = {
  async 'session-named'(e) {
    const q = await e.sessionQueue();
    const s = e.client(0).createSender(q);
    for (let i = 0; i < 4; i++) {
      await s.sendMessages([...inSession('A', `a${i}`), ...inSession('B', `b${i}`)]);
    }
    for (const [i, session] of ['B', 'A'].entries()) {
      const r = await e.client(i).acceptSession(q, session);
      assert.equal(r.sessionId, session);
      assert.ok(r.sessionLockedUntilUtc > new Date());
      const got = await e.take(r, 4);
      const low = session.toLowerCase();
      assert.deepEqual(e.texts(got), [`${low}0`, `${low}1`, `${low}2`, `${low}3`]);
      for (const m of got) assert.equal(m.sessionId, session);
      await e.complete(r, got);
      await e.none(r);
      await r.close();
    }
    // A session without message or state can be held: it reserves the id.
    const r = await e.client(2).acceptSession(q, 'C');
    await s.sendMessages(inSession('C', 'c'));
    await e.complete(r, await e.one(r));
  },

  async 'session-next'(e) {
    const q = await e.sessionQueue();
    await e.client(0).createSender(q).sendMessages([...inSession('one', '1'), ...inSession('two', '2')]);
    const held = [];
    for (let i = 0; i < 2; i++) {
      const r = await e.client(i).acceptNextSession(q);
      const m = await e.one(r);
      assert.equal(m.sessionId, r.sessionId);
      await r.completeMessage(m);
      held.push(r.sessionId);
    }
    assert.deepEqual(held.sort(), ['one', 'two']);
  },

  async 'session-none'(e) {
    const q = await e.sessionQueue();
    const c = e.client(0, { retryOptions: { timeoutInMs: 2000, maxRetries: 0 } });
    await e.refused(() => c.acceptNextSession(q), 'ServiceTimeout');
  },

  async 'session-waits'(e) {
    const q = await e.sessionQueue();
    const waiting = e.client(1).acceptNextSession(q);
    await sleep(500);
    await e.client(0).createSender(q).sendMessages(inSession('late', 'x'));
    const r = await waiting;
    assert.equal(r.sessionId, 'late');
    await e.complete(r, await e.one(r));
  },

  async 'session-held'(e) {
    const q = await filled(e, {}, 'x');
    const r = await e.client(0).acceptSession(q, 'S');
    await e.refused(() => e.client(1).acceptSession(q, 'S'), 'SessionCannotBeLocked');
    const c = e.client(2, { retryOptions: { timeoutInMs: 1500, maxRetries: 0 } });
    await e.refused(() => c.acceptNextSession(q), 'ServiceTimeout');
    await e.complete(r, await e.one(r));
    await r.close();
    await (await e.client(1).acceptSession(q, 'S')).close();
  },

  async 'session-close'(e) {
    const q = await filled(e, {}, '1', '2', '3');
    const r = await e.client(1).acceptSession(q, 'S');
    const first = await e.take(r, 3);
    await r.completeMessage(first[0]);
    await r.close();
    const next = await e.client(2).acceptSession(q, 'S');
    const got = await e.take(next, 2);
    assert.deepEqual(got.map((m) => String(m.body)), ['2', '3']);
    for (const m of got) assert.equal(m.deliveryCount, 0, 'closing raised the count');
    await e.complete(next, got);
  },

  async 'session-state'(e) {
    const q = await e.sessionQueue();
    const r = await e.client(0).acceptSession(q, 'S');
    assert.ok((await r.getSessionState()) == null, 'a fresh session has state');
    await r.setSessionState({ step: 1, words: ['ü'] });
    await r.close();
    const next = await e.client(1).acceptSession(q, 'S');
    assert.deepEqual(await next.getSessionState(), { step: 1, words: ['ü'] });
    await next.setSessionState('two');
    assert.equal(await next.getSessionState(), 'two');
    await next.setSessionState(null);
    assert.ok((await next.getSessionState()) == null, 'the state was not cleared');
  },

  async 'session-renew'(e) {
    const q = await filled(e, { lockDuration: 'PT10S' }, 'x');
    const r = await e.client(1).acceptSession(q, 'S', { maxAutoLockRenewalDurationInMs: 0 });
    const m = await e.one(r);
    for (let i = 0; i < 3; i++) {
      const old = r.sessionLockedUntilUtc;
      await sleep(4000); // thrice that is more than the lock
      await r.renewSessionLock();
      assert.ok(r.sessionLockedUntilUtc > old, 'locked-until did not move');
    }
    await r.completeMessage(m); // the message's lock is the session's
  },

  async 'session-lost'(e) {
    const q = await filled(e, { lockDuration: 'PT5S' }, '1', '2');
    const r = await e.client(1).acceptSession(q, 'S', { maxAutoLockRenewalDurationInMs: 0 });
    const m = await e.one(r);
    await sleep(6500); // the lock's five seconds, and a margin for its expiry to be noticed
    const next = await e.client(0).acceptSession(q, 'S');
    await e.fails(() => r.completeMessage(m), 'SessionLockLost');
    await e.fails(() => r.renewSessionLock(), 'SessionLockLost');
    const got = await e.take(next, 2);
    assert.deepEqual(got.map((x) => [String(x.body), x.deliveryCount]), [['1', 1], ['2', 0]]);
    await e.complete(next, got);
  },

  async 'session-abandon'(e) {
    const q = await filled(e, {}, '1', '2', '3', '4');
    const r = await e.client(1).acceptSession(q, 'S');
    const got = await e.take(r, 3);
    await r.abandonMessage(got[1]);
    const again = await e.one(r);
    assert.deepEqual([String(again.body), again.deliveryCount], ['2', 1]);
    const last = await e.one(r);
    assert.equal(String(last.body), '4');
    await e.complete(r, [got[2], got[0], last, again]);
    await e.none(r);
  },

  async 'session-defer'(e) {
    const q = await filled(e, {}, 'a', 'b');
    const r = await e.client(1).acceptSession(q, 'S');
    const m = await e.one(r);
    await r.deferMessage(m);
    const b = await e.one(r);
    assert.equal(b.body, 'b');
    await r.completeMessage(b);
    await r.close();
    const next = await e.client(0).acceptSession(q, 'S');
    await e.none(next);
    const [got] = await next.receiveDeferredMessages(m.sequenceNumber);
    assert.equal(got.body, 'a');
    await next.completeMessage(got);
    await e.fails(() => next.receiveDeferredMessages(m.sequenceNumber), 'MessageNotFound');
  },

  async 'session-dead-letter'(e) {
    const q = await filled(e, {}, 'bad', 'good');
    const r = await e.client(1).acceptSession(q, 'S');
    await r.deadLetterMessage(await e.one(r), { deadLetterReason: 'why' });
    const m = await e.one(r);
    assert.equal(m.body, 'good');
    await r.completeMessage(m);
    const d = e.client(0).createReceiver(q, { subQueueType: 'deadLetter' });
    const g = await e.one(d);
    assert.deepEqual([g.body, g.sessionId, g.deadLetterReason], ['bad', 'S', 'why']);
    await d.completeMessage(g);
  },

  async 'session-peek'(e) {
    const q = await e.sessionQueue();
    await e.client(0).createSender(q).sendMessages([...inSession('A', 'a1'), ...inSession('B', 'b1'),
      ...inSession('A', 'a2')]);
    const r = await e.client(1).acceptSession(q, 'A');
    assert.deepEqual(e.texts(await r.peekMessages(10)), ['a1', 'a2']);
    const all = e.client(0).createReceiver(q);
    assert.deepEqual(e.texts(await all.peekMessages(10, { fromSequenceNumber: Long.ZERO })), ['a1', 'b1', 'a2']);
  },

  async 'session-schedule'(e) {
    const q = await e.sessionQueue();
    const s = e.client(0).createSender(q);
    await s.scheduleMessages(inSession('S', 'later'), new Date(Date.now() + 2000));
    const r = await e.client(1).acceptNextSession(q);
    assert.equal(r.sessionId, 'S');
    const m = await e.one(r);
    assert.deepEqual([m.body, m.sessionId], ['later', 'S']);
    await r.completeMessage(m);
  },

  async 'session-receive-delete'(e) {
    const q = await filled(e, {}, 'a', 'b');
    const r = await e.client(1).acceptSession(q, 'S', { receiveMode: 'receiveAndDelete' });
    assert.deepEqual(e.texts(await e.take(r, 2)), ['a', 'b']);
    await r.close();
    await e.none(await e.client(0).acceptSession(q, 'S'));
  },

  async 'session-guard'(e) {
    const q = await e.sessionQueue();
    const plain = await e.queue();
    const c = e.client();
    const err = await e.fails(() => c.createReceiver(q).receiveMessages(1, { maxWaitTimeInMs: 5000 }));
    assert.match(err.message, /requires sessions/);
    await e.fails(() => c.createSender(q).sendMessages({ body: 'no session' }));
    await e.fails(() => c.acceptSession(plain, 'S'));
  },

  async 'session-list'(e) { e.skip('the library has no list of sessions'); },

  async 'session-share'(e) { e.skip('the library has no sessions without exclusion'); },
};
