'use strict';

const assert = require('node:assert/strict');
const { sleep } = require('./env');

const seconds = (n) => new Date(Date.now() + n * 1000);

module.exports = {
  async 'send-one'(e) {
    const q = await e.queue();
    await e.client(0).createSender(q).sendMessages({ body: 'hello' });
    const r = e.client(1).createReceiver(q);
    const m = await e.one(r);
    assert.equal(m.body, 'hello');
    await r.completeMessage(m);
    await e.none(r);
  },

  async 'send-properties'(e) {
    const q = await e.queue();
    const at = new Date('2020-02-03T04:05:06Z');
    const sent = {
      body: 'x', contentType: 'text/plain', correlationId: 'corr', messageId: 'mid-1', subject: 'subj',
      to: 'to', replyTo: 'rt', replyToSessionId: 'rts', sessionId: 'only data', partitionKey: 'only data',
      timeToLive: 90_000,
      applicationProperties: { s: 'ü', i: -5, big: 1 << 30, d: 1.5, b: true, n: null, t: at },
    };
    await e.client(0).createSender(q).sendMessages(sent);
    const m = await e.one(e.client(1).createReceiver(q));
    for (const key of ['body', 'contentType', 'correlationId', 'messageId', 'subject', 'to', 'replyTo',
      'replyToSessionId', 'sessionId', 'partitionKey', 'timeToLive']) {
      assert.equal(m[key], sent[key], key);
    }
    const p = m.applicationProperties;
    for (const key of ['s', 'i', 'big', 'd', 'b', 'n']) {
      assert.equal(p[key], sent.applicationProperties[key], key);
    }
    assert.equal(new Date(p.t).getTime(), at.getTime());
    assert.equal(m.expiresAtUtc.getTime() - m.enqueuedTimeUtc.getTime(), 90_000);
  },

  async 'send-body-kinds'(e) {
    const q = await e.queue();
    const bodies = [
      { bodyType: 'data', body: Buffer.from([0, 1, 254, 255]) },
      { bodyType: 'value', body: { word: 'text', list: [1, 2, 'three'] } },
      { bodyType: 'sequence', body: [['a', 1], ['b', true]].flat() },
    ];
    const s = e.client(0).createSender(q);
    for (const b of bodies) await s.sendMessages(b);
    const r = e.client(1).createReceiver(q, { skipParsingBodyAsJson: true });
    const got = await e.take(r, 3);
    got.forEach((m, i) => {
      assert.equal(m._rawAmqpMessage.bodyType, bodies[i].bodyType);
      assert.deepEqual(m.body, bodies[i].body);
    });
  },

  async 'send-empty'(e) {
    const q = await e.queue();
    await e.client().createSender(q).sendMessages({ body: Buffer.alloc(0), subject: 'nothing' });
    const m = await e.one(e.client().createReceiver(q, { skipParsingBodyAsJson: true }));
    assert.equal(m.body.length, 0);
    assert.equal(m.subject, 'nothing');
  },

  async 'send-id'(e) {
    const q = await e.queue();
    const s = e.client().createSender(q);
    for (const id of ['order-1', 'ü'.repeat(60), 'x'.repeat(128)]) await s.sendMessages({ body: id, messageId: id });
    for (const m of await e.take(e.client().createReceiver(q), 3)) assert.equal(m.messageId, m.body);
  },

  async 'send-pipelined'(e) {
    const q = await e.queue();
    const bodies = Array.from({ length: 500 }, (_, i) => `m${i}`);
    const s = e.client(0).createSender(q);
    const outcomes = await Promise.allSettled(bodies.map((body) => s.sendMessages({ body })));
    assert.deepEqual(outcomes.filter((o) => o.status !== 'fulfilled'), []);
    const got = await e.take(e.client(1).createReceiver(q, { receiveMode: 'receiveAndDelete' }), 500);
    assert.deepEqual(e.texts(got).sort(), bodies.sort());
  },

  async 'send-many'(e) {
    const q = await e.queue();
    const bodies = Array.from({ length: 50 }, (_, i) => `m${i}`);
    await e.client(0).createSender(q).sendMessages(bodies.map((body) => ({ body })));
    const r = e.client(1).createReceiver(q);
    const got = await e.take(r, 50);
    assert.deepEqual(e.texts(got), bodies);
    await e.complete(r, got);
  },

  async 'send-batch'(e) {
    const q = await e.queue();
    const s = e.client(0).createSender(q);
    const batch = await s.createMessageBatch();
    const filler = 'x'.repeat(16 << 10);
    let n = 0;
    while (n < 200 && batch.tryAddMessage({ body: `${n}:${filler}` })) n++;
    assert.ok(n > 50 && n < 70, `${n} messages of 16 KiB fit, want what a limit of 1 MiB holds`);
    assert.equal(batch.count, n);
    await s.sendMessages(batch);
    const r = e.client(1).createReceiver(q);
    const got = await e.take(r, n);
    got.forEach((m, i) => assert.ok(m.body.startsWith(`${i}:`), `position ${i} holds ${m.body.slice(0, 8)}`));
    await e.complete(r, got);
    const small = await s.createMessageBatch({ maxSizeInBytes: 1000 });
    assert.equal(small.tryAddMessage({ body: 'y'.repeat(2000) }), false);
  },

  async 'send-large'(e) {
    const q = await e.queue();
    const body = Buffer.alloc(900 << 10);
    for (let i = 0; i < body.length; i++) body[i] = (i * 7) & 255;
    await e.client(0).createSender(q).sendMessages({ body });
    const r = e.client(1).createReceiver(q, { skipParsingBodyAsJson: true });
    const m = await e.one(r);
    assert.ok(body.equals(m.body), 'the body came back changed');
    await r.completeMessage(m);
  },

  async 'send-too-large'(e) {
    const q = await e.queue();
    const c = e.client();
    const s = c.createSender(q);
    await e.fails(() => s.sendMessages({ body: Buffer.alloc(2 << 20) }), 'MessageSizeExceeded');
    await s.sendMessages({ body: 'small' });
    const m = await e.one(c.createReceiver(q));
    assert.equal(m.body, 'small');
    assert.equal(m.sequenceNumber.toString(), '1');
  },

  async 'send-missing'(e) {
    const s = e.client().createSender(e.name());
    await e.fails(() => s.sendMessages({ body: 'x' }), 'MessagingEntityNotFound');
    await e.fails(() => s.scheduleMessages({ body: 'x' }, seconds(60)), 'MessagingEntityNotFound');
  },

  async 'send-partitioned'(e) {
    const q = await e.queue({ enablePartitioning: true });
    const s = e.client(0).createSender(q);
    const n = 60;
    for (let i = 0; i < n; i += 12) {
      await Promise.all(Array.from({ length: 12 }, (_, k) => s.sendMessages(
        { body: i + k, partitionKey: `key-${k}` })));
    }
    const r = e.client(1).createReceiver(q);
    const numbers = new Set();
    const last = new Map();
    for (const m of await e.take(r, n)) {
      assert.ok(m.sequenceNumber.shiftRightUnsigned(48).toNumber() > 0, 'a number without partition');
      numbers.add(m.sequenceNumber.toString());
      assert.ok((last.get(m.partitionKey) ?? -1) < m.body, `${m.body} came after ${last.get(m.partitionKey)}`);
      last.set(m.partitionKey, m.body);
      await r.completeMessage(m);
    }
    assert.equal(numbers.size, n);
    await e.none(r);
  },

  async 'schedule'(e) {
    const q = await e.queue();
    const at = seconds(4);
    const numbers = await e.client(0).createSender(q).scheduleMessages({ body: 'later' }, at);
    assert.equal(numbers.length, 1);
    const r = e.client(1).createReceiver(q);
    const m = await e.one(r);
    assert.ok(Date.now() >= at.getTime(), 'received before its time');
    assert.equal(m.body, 'later');
    assert.equal(Number(m.scheduledEnqueueTimeUtc), at.getTime());
    assert.ok(m.enqueuedTimeUtc >= at, 'came before its time');
    await r.completeMessage(m);
  },

  async 'schedule-many'(e) {
    const q = await e.queue();
    const bodies = ['a', 'b', 'c', 'd'];
    const numbers = await e.client(0).createSender(q)
      .scheduleMessages(bodies.map((body) => ({ body })), seconds(2));
    assert.equal(new Set(numbers.map(String)).size, 4);
    const r = e.client(1).createReceiver(q);
    const got = await e.take(r, 4);
    assert.deepEqual(e.texts(got).sort(), bodies);
    await e.complete(r, got);
  },

  async 'schedule-property'(e) {
    const q = await e.queue();
    const at = seconds(3);
    await e.client(0).createSender(q).sendMessages({ body: 'later', scheduledEnqueueTimeUtc: at });
    const r = e.client(1).createReceiver(q);
    const m = await e.one(r);
    assert.ok(Date.now() >= at.getTime(), 'received before its time');
    assert.ok(m.enqueuedTimeUtc >= at, 'came before its time');
    await r.completeMessage(m);
  },

  async 'schedule-cancel'(e) {
    const q = await e.queue();
    const s = e.client(0).createSender(q);
    const numbers = await s.scheduleMessages([{ body: 'a' }, { body: 'b' }, { body: 'keep' }], seconds(12));
    await s.cancelScheduledMessages(numbers.slice(0, 2));
    const r = e.client(1).createReceiver(q);
    const m = await e.one(r);
    assert.equal(m.body, 'keep');
    await r.completeMessage(m);
    await e.none(r);
  },

  async 'schedule-cancel-missing'(e) {
    const q = await e.queue();
    const s = e.client().createSender(q);
    const [number] = await s.scheduleMessages({ body: 'x' }, seconds(60));
    await s.cancelScheduledMessages(number);
    await e.fails(() => s.cancelScheduledMessages(number), 'MessageNotFound');
  },

  async 'ttl-dropped'(e) {
    const q = await e.queue();
    const s = e.client(0).createSender(q);
    await s.sendMessages({ body: 'short', timeToLive: 1000 });
    await s.sendMessages({ body: 'long' });
    await sleep(1500);
    const r = e.client(1).createReceiver(q);
    const m = await e.one(r);
    assert.equal(m.body, 'long');
    await r.completeMessage(m);
    await e.none(r);
    await e.none(e.client(1).createReceiver(q, { subQueueType: 'deadLetter' }));
  },

  async 'ttl-dead-letter'(e) {
    const q = await e.queue({ deadLetteringOnMessageExpiration: true });
    await e.client(0).createSender(q).sendMessages({ body: 'short', timeToLive: 1000 });
    const r = e.client(1).createReceiver(q, { subQueueType: 'deadLetter' });
    const m = await e.one(r);
    assert.equal(m.body, 'short');
    assert.equal(m.deadLetterReason, 'TTLExpiredException');
    await r.completeMessage(m);
  },

  async 'ttl-default'(e) {
    const q = await e.queue({ defaultMessageTimeToLive: 'PT2S' });
    await e.client(0).createSender(q).sendMessages([{ body: 'a' }, { body: 'b', timeToLive: 3_600_000 }]);
    const c = e.client(1).createReceiver(q);
    const seen = await c.peekMessages(10);
    for (const m of seen) assert.ok(m.expiresAtUtc - m.enqueuedTimeUtc <= 2000, 'outlives the queue\'s limit');
    await sleep(2500);
    await e.none(c);
  },

  async 'duplicate-dropped'(e) {
    const q = await e.queue({ requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: 'PT1M' });
    await e.client(0).createSender(q).sendMessages({ body: 'first', messageId: 'same' });
    await e.client(1).createSender(q).sendMessages({ body: 'second', messageId: 'same' });
    await e.client(0).createSender(q).sendMessages({ body: 'other', messageId: 'other' });
    const r = e.client(1).createReceiver(q);
    const got = await e.take(r, 2);
    assert.deepEqual(e.texts(got), ['first', 'other']);
    await e.complete(r, got);
    await e.none(r);
    await e.client(1).createSender(q).sendMessages({ body: 'third', messageId: 'same' });
    await e.none(r);
  },

  async 'duplicate-batch'(e) {
    const q = await e.queue({ requiresDuplicateDetection: true });
    const s = e.client(0).createSender(q);
    await s.sendMessages(['a', 'b', 'a', 'c', 'b'].map((id, i) => ({ body: id + i, messageId: id })));
    const r = e.client(1).createReceiver(q);
    const got = await e.take(r, 3);
    assert.deepEqual(e.texts(got), ['a0', 'b1', 'c3']);
    await e.complete(r, got);
    await e.none(r);
  },
};
