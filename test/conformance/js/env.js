// What a scenario gets: clients of its own, entities of its own, and words for what it expects.
'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { ServiceBusAdministrationClient, ServiceBusClient } = require('@azure/service-bus');
const WebSocket = require('ws');

const sdkVersion = require('@azure/service-bus/package.json').version;
const lines = (name) => (process.env[name] || '').split('\n').filter(Boolean);
const wire = process.env.BUSBAR_WIRE || 'plain';
const dataStrings = lines('BUSBAR_DATA');
const adminStrings = lines('BUSBAR_ADMIN');

// soonMs bounds the wait for a message that must come, quietMs the wait for one that must not.
const soonMs = 20_000;
const quietMs = 1_200;

class SkipError extends Error {}

class Env {
  constructor(id, index, limitMs) {
    this.limitMs = limitMs;
    this.index = index;
    this.prefix = `js-${id}-${crypto.randomBytes(4).toString('hex')}`;
    this.made = 0;
    this.closers = [];
  }

  skip(reason) { throw new SkipError(reason); }

  // dataString is the connection string of the i-th node; the scenarios spread over the nodes.
  dataString(i = 0) { return dataStrings[(this.index + i) % dataStrings.length]; }

  adminString(i = 0) { return adminStrings[(this.index + i) % adminStrings.length]; }

  client(i = 0, options = {}) { return this.clientFor(this.dataString(i), options); }

  clientFor(connectionString, options = {}) {
    const all = {
      retryOptions: { maxRetries: 2, retryDelayInMs: 200, timeoutInMs: 20_000 },
      ...options,
    };
    if (wire === 'websocket') all.webSocketOptions = { webSocket: WebSocket };
    const c = new ServiceBusClient(connectionString, all);
    this.later(() => c.close());
    return c;
  }

  admin(i = 0) { return new ServiceBusAdministrationClient(this.adminString(i)); }

  later(f) { this.closers.push(f); }

  name(kind = 'q') { return `${this.prefix}-${kind}${++this.made}`; }

  // queue creates a queue and deletes it when the scenario is over.
  async queue(options = {}) {
    const name = this.name();
    await this.admin().createQueue(name, options);
    this.later(() => this.admin().deleteQueue(name));
    return name;
  }

  sessionQueue(options = {}) {
    return this.queue({ requiresSession: true, lockDuration: 'PT1M', ...options });
  }

  async topic(options = {}) {
    const name = this.name('t');
    await this.admin().createTopic(name, options);
    this.later(() => this.admin().deleteTopic(name));
    return name;
  }

  async close() {
    for (const f of this.closers.reverse()) {
      try {
        await f();
      } catch {
        // The scenario has deleted the entity itself, or has failed already.
      }
    }
  }

  // take receives exactly n messages.
  async take(receiver, n) {
    const all = [];
    const end = Date.now() + soonMs;
    while (all.length < n) {
      const left = end - Date.now();
      assert.ok(left > 0, `received ${all.length} of ${n}: ${this.texts(all)}`);
      all.push(...await receiver.receiveMessages(n - all.length, { maxWaitTimeInMs: left }));
    }
    return all;
  }

  // refused expects that a session is not given. A version before 7.9.1 may meet the broker's detach
  // before its own code, and tells that with an error of its own (Azure/azure-sdk-for-js 27010).
  async refused(what, code) { return this.fails(what, atLeast('7.9.1') ? code : undefined); }

  async one(receiver) { return (await this.take(receiver, 1))[0]; }

  // none fails when a message comes within the quiet time.
  async none(receiver) {
    const got = await receiver.receiveMessages(1, { maxWaitTimeInMs: quietMs });
    assert.deepEqual(this.texts(got), [], 'a message came where none should');
  }

  async complete(receiver, messages) {
    for (const m of [].concat(messages)) await receiver.completeMessage(m);
  }

  texts(messages) {
    return messages.map((m) => (Buffer.isBuffer(m.body) ? m.body.toString() : String(m.body)));
  }

  // fails expects the SDK's own error code.
  async fails(what, code) {
    try {
      await (typeof what === 'function' ? what() : what);
    } catch (thrown) {
      const err = thrown.errors ? thrown.errors.at(-1) : thrown; // the last of several tries
      if (code) assert.equal(err.code, code, `${err.name}: ${err.message}`);
      return err;
    }
    return assert.fail(`succeeded, want ${code || 'a failure'}`);
  }
}

// atLeast reports whether the library has that version or a newer one.
function atLeast(version) {
  const numbers = (text) => text.split('-')[0].split('.').map(Number);
  const [have, want] = [numbers(sdkVersion), numbers(version)];
  const differs = have.findIndex((n, i) => n !== want[i]);
  return differs < 0 || have[differs] > want[differs];
}

// states are what the library tells of messages' states; versions before 7.5 tell none.
const states = (...all) => (atLeast('7.5.0') ? all : all.map(() => undefined));

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

// until polls for what the broker does at a time of its own.
async function until(what, check) {
  const end = Date.now() + soonMs;
  for (;;) {
    const got = await check();
    if (got) return got;
    assert.ok(Date.now() < end, `waited in vain: ${what}`);
    await sleep(100);
  }
}

module.exports = { Env, atLeast, states, SkipError, sdkVersion, soonMs, quietMs, sleep, until, wire };
