// The tests of the kit, with the official SDK.
const assert = require('node:assert');
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { ServiceBusClient } = require('@azure/service-bus');
const { start } = require('busbartest');

const ENTITIES = {
  Queues: [{ Name: 'invoices', Properties: { MaxDeliveryCount: 1 } }],
  Topics: [{ Name: 'events', Subscriptions: [{ Name: 'urgent', Rules: [
    { Name: 'r', Properties: { FilterType: 'Sql', SqlFilter: { SqlExpression: 'priority > 3' } } }] }] }],
};

async function withBroker(options, work) {
  const broker = await start(options);
  const client = new ServiceBusClient(broker.connectionString);
  try {
    await work(broker, client);
  } finally {
    await client.close();
    await broker.stop();
  }
}

async function send(client, to, body, applicationProperties) {
  const sender = client.createSender(to);
  await sender.sendMessages({ body, applicationProperties });
  await sender.close();
}

async function bodies(receiver) {
  const messages = await receiver.receiveMessages(10, { maxWaitTimeInMs: 20_000 });
  await receiver.close();
  return messages.map((m) => m.body);
}

for (const form of ['file', 'code']) {
  test(`entities of ${form}, and a reset`, async () => {
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'kit-')), 'Config.json');
    fs.writeFileSync(file, JSON.stringify(ENTITIES));
    await withBroker({ entities: form === 'file' ? file : ENTITIES }, async (broker, client) => {
      await send(client, 'events', 'low', { priority: 1 });
      await send(client, 'events', 'high', { priority: 5 });
      assert.deepEqual(await bodies(client.createReceiver('events', 'urgent')), ['high']);
      await send(client, 'invoices', 'one');
      await broker.reset();
      assert.deepEqual(await client.createReceiver('invoices').peekMessages(10), []);
    });
  });
}

test('entities of a test', async () => {
  await withBroker({}, async (broker, client) => {
    const one = await broker.queue('q');
    const two = await broker.queue('q', { RequiresSession: true, UserMetadata: 'a < b & c' });
    assert.notEqual(one, two);
    await send(client, one, 'mine');
    assert.deepEqual(await bodies(client.createReceiver(one)), ['mine']);
    await assert.rejects(client.createReceiver(two).receiveMessages(1, { maxWaitTimeInMs: 5000 }), /session/i);
    const topic = await broker.topic('t', ['a', 'b']);
    await send(client, topic, 'all');
    for (const s of ['a', 'b']) assert.deepEqual(await bodies(client.createReceiver(topic, s)), ['all']);
    await assert.rejects(broker.queue('q', { Colour: 'red' }), /Colour/);
    await assert.rejects(broker.queue('q', { MaxDeliveryCount: 0 }), /400/);
  });
});

test('brokers share nothing', async () => {
  const a = await start();
  await withBroker({}, async (b, client) => {
    assert.notEqual(a.connectionString, b.connectionString);
    const dir = a._dir;
    await a.stop();
    await a.stop();
    assert.ok(!fs.existsSync(dir), 'the directory is still there');
    assert.match(a.log, /is ready after/);
    await send(client, await b.queue('q'), 'x');
  });
});

// another runs a script in a process of its own.
const another = ['-e', 'require("busbartest").start().then((b) => console.log(b.operations + " "))'];
const here = { cwd: path.join(__dirname, '..'), encoding: 'utf8' };

async function reaches(url) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = net.connect(port, hostname, () => { socket.destroy(); resolve(true); });
    socket.on('error', () => resolve(false));
  });
}

test('a broker ends with a killed test', async () => {
  const holder = spawn(process.execPath, ['-e', another[1] + '; setInterval(() => {}, 1000)'], { ...here, stdio: ['ignore', 'pipe', 'inherit'] });
  const url = String((await holder.stdout[Symbol.asyncIterator]().next()).value).trim();
  assert.ok(await reaches(url));
  holder.kill('SIGKILL');
  for (const end = Date.now() + 20_000; await reaches(url); await sleep(50)) assert.ok(Date.now() < end, 'the broker is still there');
});

test('a process that forgets its broker ends', async () => {
  const done = spawnSync(process.execPath, another, { ...here, timeout: 60_000 });
  assert.equal(done.status, 0, done.stderr);
  for (const end = Date.now() + 20_000; await reaches(done.stdout.trim()); await sleep(50)) assert.ok(Date.now() < end, 'the broker is still there');
});

test('the log is printed when a test fails', () => {
  const script = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'kit-')), 'red.test.js');
  fs.writeFileSync(script, `
    const { test, before, after } = require('node:test');
    let broker;
    before(async () => { broker = await require(${JSON.stringify(here.cwd)}).start(); });
    after(() => broker.stop());
    test('red', async () => { await broker.queue('made-by-red'); throw new Error('on purpose'); });`);
  const env = { ...process.env };
  delete env.NODE_TEST_CONTEXT;
  const red = spawnSync(process.execPath, [script], { ...here, env });
  assert.notEqual(red.status, 0);
  assert.match(red.stderr, /log of the broker:[^]*made-by-red/);
});

test('a faulty set-up is explained', async () => {
  await assert.rejects(start({ entities: { Queues: [{ Name: 'a b' }] } }), /\/Queues\/0/);
  await assert.rejects(start({ program: '/no/such/busbar' }), /\/no\/such\/busbar/);
  const { BUSBAR_BINARY, PATH } = process.env;
  try {
    delete process.env.BUSBAR_BINARY;
    process.env.PATH = '/nowhere';
    await assert.rejects(start(), /BUSBAR_BINARY/);
  } finally {
    Object.assign(process.env, { BUSBAR_BINARY, PATH });
  }
});

// Without a program a container is started. A stand-in takes the place of the command docker.
test('a container', async () => {
  const { BUSBAR_BINARY, PATH, TMPDIR } = process.env;
  try {
    delete process.env.BUSBAR_BINARY;
    Object.assign(process.env, { BUSBAR_STANDIN: BUSBAR_BINARY, BUSBAR_IMAGE: 'busbar:test',
      PATH: `${path.join(__dirname, '..', '..', 'docker')}:/usr/bin:/bin`, TMPDIR: fs.mkdtempSync(path.join(os.tmpdir(), 'kit-')) });
    await withBroker({ entities: ENTITIES }, (broker, client) => send(client, 'invoices', 'x'));
    process.env.BUSBAR_IMAGE = 'busbar:absent';
    await assert.rejects(start(), /busbar:absent/);
  } finally {
    Object.assign(process.env, { BUSBAR_BINARY, PATH });
    delete process.env.BUSBAR_IMAGE;
    if (TMPDIR === undefined) delete process.env.TMPDIR; else process.env.TMPDIR = TMPDIR;
  }
});
