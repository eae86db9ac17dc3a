'use strict';

const assert = require('node:assert/strict');
const Long = require('long');
const { states } = require('./env');

const soon = () => new Date(Date.now() + 60_000);

module.exports = {
  async 'peek'(e) {
    const q = await e.queue();
    const c = e.client(0);
    await c.createSender(q).sendMessages(['m0', 'm1', 'm2', 'm3', 'm4'].map((body) => ({ body })));
    const r = e.client(1).createReceiver(q);
    const locked = await e.one(r);
    const seen = [...await r.peekMessages(3), ...await r.peekMessages(3)];
    assert.deepEqual(e.texts(seen), ['m0', 'm1', 'm2', 'm3', 'm4']);
    for (const m of seen) assert.equal(m.state, ...states('active'));
    const rest = await e.take(r, 4);
    for (const m of rest) assert.equal(m.deliveryCount, 0, 'peek raised the delivery count');
    await e.complete(r, [...rest, locked]);
  },

  async 'peek-from'(e) {
    const q = await e.queue();
    await e.client(0).createSender(q).sendMessages(['a', 'b', 'c', 'd'].map((body) => ({ body })));
    const r = e.client(1).createReceiver(q);
    const got = await r.peekMessages(2, { fromSequenceNumber: Long.fromNumber(2) });
    assert.deepEqual(e.texts(got), ['b', 'c']);
    assert.deepEqual(e.texts(await r.peekMessages(9)), ['d']);
    assert.deepEqual(await r.peekMessages(1, { fromSequenceNumber: Long.fromNumber(99) }), []);
  },

  async 'peek-states'(e) {
    const q = await e.queue();
    const s = e.client(0).createSender(q);
    await s.sendMessages([{ body: 'defer' }, { body: 'stay' }]);
    await s.scheduleMessages({ body: 'wait' }, soon());
    const r = e.client(1).createReceiver(q);
    await r.deferMessage(await e.one(r));
    const got = await r.peekMessages(10, { fromSequenceNumber: Long.ZERO });
    assert.deepEqual(got.map((m) => [m.body, m.state]),
      [['defer', 'deferred'], ['stay', 'active'], ['wait', 'scheduled']]);
  },

  async 'peek-dead-letters'(e) {
    const q = await e.queue();
    await e.client(0).createSender(q).sendMessages([{ body: 'bad' }, { body: 'good' }]);
    const r = e.client(1).createReceiver(q);
    await r.deadLetterMessage(await e.one(r), { deadLetterReason: 'why' });
    const d = e.client(0).createReceiver(q, { subQueueType: 'deadLetter' });
    const got = await d.peekMessages(10);
    assert.deepEqual(got.map((m) => [m.body, m.deadLetterReason]), [['bad', 'why']]);
    assert.deepEqual(e.texts(await r.peekMessages(10, { fromSequenceNumber: Long.ZERO })), ['good']);
  },

  async 'peek-empty'(e) {
    const q = await e.queue();
    assert.deepEqual(await e.client().createReceiver(q).peekMessages(5), []);
  },

  async 'delete-batch'(e) { e.skip('the library has no deletion of messages'); },
  async 'delete-purge'(e) { e.skip('the library has no deletion of messages'); },
};
