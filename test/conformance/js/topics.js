'use strict';

const assert = require('node:assert/strict');
const { until } = require('./env');

const missing = async (f) => assert.rejects(f, (err) => err.code === 'MessageEntityNotFoundError');
const exists = async (f) => assert.rejects(f, (err) => err.statusCode === 409);

const all = async (pages) => {
  const got = [];
  for await (const x of pages) got.push(x);
  return got;
};

// chosen returns the bodies that reached the subscription.
async function chosen(e, topic, name) {
  const r = e.client(1).createReceiver(topic, name);
  const got = [];
  for (;;) {
    const batch = await r.receiveMessages(10, { maxWaitTimeInMs: got.length ? 1500 : 5000 });
    if (batch.length === 0) return got;
    got.push(...e.texts(batch));
    await e.complete(r, batch);
  }
}

// filtered creates a topic with a subscription for each rule.
async function filtered(e, rules) {
  const t = await e.topic();
  for (const [name, [filter, action]] of Object.entries(rules)) {
    await e.admin().createSubscription(t, name, { defaultRuleOptions: { name: 'only', filter, action } });
  }
  return t;
}

const sql = (sqlExpression) => ({ sqlExpression });

module.exports = {
  async 'topic-admin'(e) {
    const a = e.admin(0);
    const name = e.name('t');
    const made = await a.createTopic(name, { userMetadata: 'note', defaultMessageTimeToLive: 'PT2H' });
    assert.deepEqual([made.name, made.userMetadata], [name, 'note']);
    const read = await e.admin(1).getTopic(name);
    assert.equal(read.defaultMessageTimeToLive, 'PT2H');
    read.userMetadata = 'changed';
    assert.equal((await a.updateTopic(read)).userMetadata, 'changed');
    await exists(() => a.createTopic(name));
    await exists(() => a.createQueue(name));
    await until('the topic is listed', async () => (await all(a.listTopics())).some((t) => t.name === name));
    assert.equal(await a.topicExists(name), true);
    await a.deleteTopic(name);
    assert.equal(await a.topicExists(name), false);
  },

  async 'subscription-admin'(e) {
    const t = await e.topic();
    const a = e.admin(0);
    const made = await a.createSubscription(t, 'one', {
      lockDuration: 'PT45S', maxDeliveryCount: 7, deadLetteringOnFilterEvaluationExceptions: false });
    assert.deepEqual([made.subscriptionName, made.topicName, made.lockDuration, made.maxDeliveryCount],
      ['one', t, 'PT45S', 7]);
    await a.createSubscription(t, 'two');
    const read = await e.admin(1).getSubscription(t, 'one');
    read.userMetadata = 'changed';
    assert.equal((await a.updateSubscription(read)).userMetadata, 'changed');
    assert.deepEqual((await all(a.listSubscriptions(t))).map((s) => s.subscriptionName), ['one', 'two']);
    assert.equal((await a.getTopicRuntimeProperties(t)).subscriptionCount, 2);
    await exists(() => a.createSubscription(t, 'one'));
    await a.deleteSubscription(t, 'one');
    assert.equal(await a.subscriptionExists(t, 'one'), false);
  },

  async 'rule-admin'(e) {
    const t = await e.topic();
    const a = e.admin(0);
    await a.createSubscription(t, 's');
    const [first, ...others] = await all(a.listRules(t, 's'));
    assert.deepEqual([first.name, first.filter.sqlExpression, others.length], ['$Default', '1=1', 0]);
    const expression = "price > 10 AND colour IN ('red','blue')";
    await a.createRule(t, 's', 'sql', sql(expression), sql('SET marked = TRUE; REMOVE colour'));
    await a.createRule(t, 's', 'corr', {
      subject: 'l', correlationId: 'c', contentType: 'ct', applicationProperties: { kind: 'a', n: 5 } });
    const read = await e.admin(1).getRule(t, 's', 'sql');
    assert.deepEqual([read.filter.sqlExpression, read.action.sqlExpression],
      [expression, 'SET marked = TRUE; REMOVE colour']);
    const corr = await e.admin(1).getRule(t, 's', 'corr');
    assert.deepEqual([corr.filter.subject, corr.filter.correlationId, corr.filter.contentType], ['l', 'c', 'ct']);
    assert.deepEqual(corr.filter.applicationProperties, { kind: 'a', n: 5 });
    read.filter = sql('price > 20');
    assert.equal((await a.updateRule(t, 's', read)).filter.sqlExpression, 'price > 20');
    assert.deepEqual((await all(a.listRules(t, 's'))).map((r) => r.name).sort(), ['$Default', 'corr', 'sql']);
    await a.deleteRule(t, 's', '$Default');
    assert.equal(await a.ruleExists(t, 's', '$Default'), false);
    await missing(() => a.getRule(t, 's', '$Default'));
  },

  async 'topic-fan-out'(e) {
    const t = await e.topic();
    for (const name of ['a', 'b', 'c']) await e.admin().createSubscription(t, name);
    const bodies = ['m0', 'm1', 'm2', 'm3', 'm4'];
    await e.client(0).createSender(t).sendMessages(bodies.map((body) => ({ body })));
    for (const [i, name] of ['a', 'b', 'c'].entries()) {
      const r = e.client(i).createReceiver(t, name);
      const got = await e.take(r, 5);
      assert.deepEqual(e.texts(got), bodies);
      await e.complete(r, got);
      await e.none(r);
    }
  },

  async 'topic-sql'(e) {
    const t = await filtered(e, {
      dear: [sql('price > 10')], red: [sql("colour = 'red' OR sys.Label LIKE 'r%'")],
      nothing: [sql('1=0')], bare: [sql('price IS NULL')],
    });
    await e.client(0).createSender(t).sendMessages([
      { body: 'a', applicationProperties: { price: 5, colour: 'red' } },
      { body: 'b', applicationProperties: { price: 15, colour: 'blue' } },
      { body: 'c', applicationProperties: { price: 20.5 }, subject: 'rose' }, { body: 'd' }]);
    assert.deepEqual(await chosen(e, t, 'dear'), ['b', 'c']);
    assert.deepEqual(await chosen(e, t, 'red'), ['a', 'c']);
    assert.deepEqual(await chosen(e, t, 'bare'), ['d']);
    assert.deepEqual(await chosen(e, t, 'nothing'), []);
  },

  async 'topic-correlation'(e) {
    const t = await filtered(e, {
      label: [{ subject: 'l' }],
      both: [{ correlationId: 'c', applicationProperties: { kind: 'a' } }],
    });
    await e.client(0).createSender(t).sendMessages([{ body: 'a', subject: 'l' }, { body: 'b', correlationId: 'c' },
      { body: 'c', correlationId: 'c', applicationProperties: { kind: 'a' } }]);
    assert.deepEqual(await chosen(e, t, 'label'), ['a']);
    assert.deepEqual(await chosen(e, t, 'both'), ['c']);
  },

  async 'topic-action'(e) {
    const t = await filtered(e, {
      changed: [sql('1=1'), sql("SET total = price * 2; SET sys.Label = 'marked'; REMOVE secret")] });
    await e.client(0).createSender(t).sendMessages({ body: 'x', applicationProperties: { price: 21, secret: 's' } });
    const m = await e.one(e.client(1).createReceiver(t, 'changed'));
    assert.equal(Number(m.applicationProperties.total), 42);
    assert.equal(m.applicationProperties.secret, undefined);
    assert.equal(m.subject, 'marked');
  },

  async 'topic-rules-live'(e) {
    const t = await e.topic();
    await e.admin().createSubscription(t, 's');
    const rules = e.client(0).createRuleManager(t, 's');
    const [first] = await all(rules.listRules());
    assert.deepEqual([first.name, first.filter.sqlExpression], ['$Default', '1=1']);
    await rules.createRule('red', sql("colour = 'red'"), sql('SET seen = TRUE'));
    await rules.createRule('corr', { correlationId: 'c', applicationProperties: { kind: 'a' } });
    await rules.deleteRule('$Default');
    const got = (await all(rules.listRules())).sort((a, b) => a.name.localeCompare(b.name));
    assert.deepEqual(got.map((r) => r.name), ['corr', 'red']);
    assert.deepEqual([got[1].filter.sqlExpression, got[1].action.sqlExpression],
      ["colour = 'red'", 'SET seen = TRUE']);
    assert.deepEqual([got[0].filter.correlationId, got[0].filter.applicationProperties], ['c', { kind: 'a' }]);
    await assert.rejects(() => rules.createRule('red', sql('1=1')), (err) => err.code === 'MessagingEntityAlreadyExists');
    await assert.rejects(() => rules.deleteRule('nobody'));
    await until('the rules are in force', async () => {
      await e.client(0).createSender(t).sendMessages([{ body: 'plain' },
        { body: 'red', applicationProperties: { colour: 'red' } }]);
      return !(await chosen(e, t, 's')).includes('plain');
    });
  },

  async 'topic-dead-letter'(e) {
    const t = await e.topic();
    await e.admin().createSubscription(t, 's');
    await e.client(0).createSender(t).sendMessages({ body: 'bad' });
    const r = e.client(1).createReceiver(t, 's');
    await r.deadLetterMessage(await e.one(r), { deadLetterReason: 'why' });
    const d = e.client(0).createReceiver(t, 's', { subQueueType: 'deadLetter' });
    const m = await e.one(d);
    assert.deepEqual([m.body, m.deadLetterReason], ['bad', 'why']);
    await d.completeMessage(m);
  },

  async 'topic-sessions'(e) {
    const t = await e.topic();
    await e.admin().createSubscription(t, 's', { requiresSession: true });
    const s = e.client(0).createSender(t);
    for (let i = 0; i < 3; i++) {
      await s.sendMessages(['A', 'B'].map((sessionId) => ({ sessionId, body: sessionId + i })));
    }
    const held = [];
    for (let i = 0; i < 2; i++) {
      const r = await e.client(i).acceptNextSession(t, 's');
      const got = await e.take(r, 3);
      assert.deepEqual(e.texts(got), [0, 1, 2].map((k) => r.sessionId + k));
      await e.complete(r, got);
      held.push(r.sessionId);
    }
    assert.deepEqual(held.sort(), ['A', 'B']);
  },

  async 'topic-schedule'(e) {
    const t = await e.topic();
    await e.admin().createSubscription(t, 's');
    const s = e.client(0).createSender(t);
    const at = new Date(Date.now() + 12_000);
    const numbers = await s.scheduleMessages([{ body: 'keep' }, { body: 'drop' }], at);
    await s.cancelScheduledMessages(numbers[1]);
    const r = e.client(1).createReceiver(t, 's');
    const m = await e.one(r);
    assert.ok(Date.now() >= at.getTime(), 'received before its time');
    assert.equal(m.body, 'keep');
    await r.completeMessage(m);
    await e.none(r);
  },

  async 'topic-receive'(e) {
    const t = await e.topic();
    await e.fails(() => e.client().createReceiver(t).receiveMessages(1, { maxWaitTimeInMs: 5000 }));
  },

  async 'topic-counts'(e) {
    const t = await e.topic();
    await e.admin().createSubscription(t, 's');
    await e.client(0).createSender(t).sendMessages(['a', 'b', 'c'].map((body) => ({ body })));
    const r = e.client(1).createReceiver(t, 's');
    await r.deadLetterMessage(await e.one(r));
    await until('the counts', async () => {
      const p = await e.admin(1).getSubscriptionRuntimeProperties(t, 's');
      return p.activeMessageCount === 2 && p.deadLetterMessageCount === 1 && p.totalMessageCount === 3;
    });
  },

  async forward(e) {
    const last = await e.queue();
    const second = await e.queue({ forwardTo: last });
    const first = await e.queue({ forwardTo: second });
    await e.client(0).createSender(first).sendMessages({
      body: 'x', messageId: 'the-id', applicationProperties: { k: 'v' } });
    const r = e.client(1).createReceiver(last);
    const m = await e.one(r);
    assert.deepEqual([m.body, m.messageId, m.deliveryCount, m.applicationProperties], ['x', 'the-id', 0, { k: 'v' }]);
    await r.completeMessage(m);
    await e.fails(() => e.client(1).createReceiver(first).receiveMessages(1, { maxWaitTimeInMs: 5000 }));
  },

  async 'forward-topic'(e) {
    const q = await e.queue();
    const t = await e.topic();
    await e.admin().createSubscription(t, 's', { forwardTo: q });
    await e.client(0).createSender(t).sendMessages([{ body: 'a' }, { body: 'b' }]);
    assert.deepEqual(e.texts(await e.take(e.client(1).createReceiver(q), 2)).sort(), ['a', 'b']);
  },

  async 'forward-dead-letters'(e) {
    const graves = await e.queue();
    const q = await e.queue({ forwardDeadLetteredMessagesTo: graves });
    await e.client(0).createSender(q).sendMessages({ body: 'bad' });
    const r = e.client(1).createReceiver(q);
    await r.deadLetterMessage(await e.one(r), { deadLetterReason: 'why' });
    const d = e.client(0).createReceiver(graves);
    const m = await e.one(d);
    assert.deepEqual([m.body, m.deadLetterReason, m.deadLetterSource.toLowerCase()], ['bad', 'why', q.toLowerCase()]);
    await d.completeMessage(m);
  },
};

for (const kind of ['commit', 'rollback', 'schedule', 'settle', 'session', 'cross-entity']) {
  module.exports[`transaction-${kind}`] = async (e) => e.skip('the library has no transactions');
}
