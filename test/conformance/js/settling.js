'use strict';

const assert = require('node:assert/strict');
const Long = require('long');
const { sleep } = require('./env');

async function withOne(e, options) {
  const q = await e.queue(options);
  await e.client(0).createSender(q).sendMessages({ body: 'x', messageId: 'id-1' });
  const r = e.client(1).createReceiver(q);
  return { q, r, m: await e.one(r), dead: (i) => e.client(i).createReceiver(q, { subQueueType: 'deadLetter' }) };
}

module.exports = {
  async 'settle-once'(e) {
    const { r, m } = await withOne(e);
    await r.completeMessage(m);
    await e.fails(() => r.completeMessage(m));
    await e.fails(() => r.abandonMessage(m));
    await e.none(r);
  },

  // The library settles through $management once the link is gone, by the lock's token.
  async 'settle-elsewhere'(e) {
    const { q, r, m } = await withOne(e);
    await r.close();
    const other = e.client(0).createReceiver(q);
    await e.none(other);
    const until = await other.renewMessageLock(m);
    assert.ok(until > new Date());
    await other.completeMessage(m);
    await e.none(other);
    await e.fails(() => other.completeMessage(m));
  },

  async 'abandon'(e) {
    const { r, m } = await withOne(e);
    await r.abandonMessage(m);
    const again = await e.one(r);
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.sequenceNumber.toString(), m.sequenceNumber.toString());
    assert.notEqual(again.lockToken, m.lockToken);
    await r.completeMessage(again);
    await e.none(r);
  },

  async 'abandon-properties'(e) {
    const { r, m } = await withOne(e);
    await r.abandonMessage(m, { why: 'because', times: 3, yes: true });
    const again = await e.one(r);
    assert.equal(again.applicationProperties.why, 'because');
    assert.equal(again.applicationProperties.times, 3);
    assert.equal(again.applicationProperties.yes, true);
    await r.completeMessage(again);
  },

  async 'abandon-delay'(e) {
    const { r, m } = await withOne(e);
    await r.abandonMessage(m, { 'x-busbar-delay': 3_000, why: 'later' });
    await e.none(r);
    const again = await e.one(r);
    assert.deepEqual([again.deliveryCount, again.applicationProperties], [1, { why: 'later' }]);
    await r.completeMessage(again);
  },

  async 'defer'(e) {
    const { q, r, m } = await withOne(e);
    await r.deferMessage(m);
    await e.none(r);
    const other = e.client(0).createReceiver(q);
    const [got] = await other.receiveDeferredMessages(m.sequenceNumber);
    assert.equal(got.body, 'x');
    assert.equal(got.sequenceNumber.toString(), m.sequenceNumber.toString());
    await other.abandonMessage(got); // deferred it stays
    await e.none(other);
    const [again] = await other.receiveDeferredMessages([m.sequenceNumber]);
    assert.equal(again.deliveryCount, got.deliveryCount + 1);
    await other.completeMessage(again);
    await e.fails(() => other.receiveDeferredMessages(m.sequenceNumber), 'MessageNotFound');
  },

  async 'defer-properties'(e) {
    const { r, m } = await withOne(e);
    await r.deferMessage(m, { step: 'two' });
    const [got] = await r.receiveDeferredMessages(m.sequenceNumber);
    assert.equal(got.applicationProperties.step, 'two');
    await r.deadLetterMessage(got, { deadLetterReason: 'from deferral' });
  },

  async 'defer-missing'(e) {
    const { r, m } = await withOne(e);
    await e.fails(() => r.receiveDeferredMessages(m.sequenceNumber), 'MessageNotFound');
    await e.fails(() => r.receiveDeferredMessages(m.sequenceNumber.add(1000)), 'MessageNotFound');
    await r.completeMessage(m);
  },

  async 'dead-letter'(e) {
    const { r, m, dead } = await withOne(e);
    await r.deadLetterMessage(m, { deadLetterReason: 'reason-x', deadLetterErrorDescription: 'description-y', added: 7 });
    await e.none(r);
    const d = dead(0);
    const g = await e.one(d);
    assert.equal(g.body, 'x');
    assert.equal(g.messageId, 'id-1');
    assert.equal(g.deadLetterReason, 'reason-x');
    assert.equal(g.deadLetterErrorDescription, 'description-y');
    assert.equal(g.applicationProperties.added, 7);
    assert.equal(g.sequenceNumber.toString(), m.sequenceNumber.toString());
    await d.completeMessage(g);
    await e.none(d);
  },

  async 'dead-letter-settle'(e) {
    const { r, m, dead } = await withOne(e);
    await r.deadLetterMessage(m);
    const d = dead(0);
    const first = await e.one(d);
    assert.equal(first.deadLetterReason, undefined);
    await d.abandonMessage(first);
    const second = await e.one(d);
    await d.renewMessageLock(second);
    await d.deferMessage(second);
    await e.none(d);
    const [third] = await d.receiveDeferredMessages(second.sequenceNumber);
    await d.completeMessage(third);
    assert.deepEqual(await d.peekMessages(1, { fromSequenceNumber: Long.ZERO }), []);
  },

  async 'dead-letter-twice'(e) {
    const { r, m, dead } = await withOne(e, { lockDuration: 'PT5S' });
    await r.deadLetterMessage(m);
    const d = dead(1);
    const g = await e.one(d);
    await e.fails(() => d.deadLetterMessage(g));
    const again = await e.one(d); // for the library the message is settled, so its lock runs out
    assert.equal(again.deliveryCount, g.deliveryCount, 'counts rise in the dead-letter queue');
    await d.completeMessage(again);
  },

  async 'max-delivery'(e) {
    const { r, m, dead } = await withOne(e, { maxDeliveryCount: 3 });
    await r.abandonMessage(m);
    for (let i = 1; i < 3; i++) {
      const again = await e.one(r);
      assert.equal(again.deliveryCount, i);
      await r.abandonMessage(again);
    }
    await e.none(r);
    const d = dead(0);
    const g = await e.one(d);
    assert.equal(g.deadLetterReason, 'MaxDeliveryCountExceeded');
    await d.completeMessage(g);
  },

  async 'lock-renew'(e) {
    const { q, r, m } = await withOne(e, { lockDuration: 'PT10S' });
    const other = e.client(0).createReceiver(q);
    for (let i = 0; i < 3; i++) {
      const old = m.lockedUntilUtc;
      await sleep(4000); // thrice that is more than the lock
      const now = await r.renewMessageLock(m);
      assert.ok(now > old, 'locked-until did not move');
      assert.equal(m.lockedUntilUtc.getTime(), now.getTime());
    }
    await e.none(other);
    await r.completeMessage(m);
  },

  async 'lock-lost'(e) {
    const q = await e.queue({ lockDuration: 'PT5S' });
    await e.client(0).createSender(q).sendMessages({ body: 'x' });
    const r = e.client(1).createReceiver(q, { maxAutoLockRenewalDurationInMs: 0 });
    const m = await e.one(r);
    const other = e.client(0).createReceiver(q);
    const again = await e.one(other); // waits for the expiry
    assert.equal(again.deliveryCount, 1);
    assert.ok(Date.now() >= m.lockedUntilUtc - 1000, 'delivered while the lock was held');
    await e.fails(() => r.completeMessage(m), 'MessageLockLost');
    await e.fails(() => r.renewMessageLock(m), 'MessageLockLost');
    await other.completeMessage(again);
  },
};
