// A load of the official library, with the retries that it has by default. It tells on standard output what its clients
// did, a line each, and obeys "stop" (senders end) and "end" (all ends) on standard input. foreign.go has the words.
'use strict';

const readline = require('node:readline');
const { inspect } = require('node:util');
const { ServiceBusClient } = require('@azure/service-bus');

const env = process.env;
const [name, plain, ordered] = [env.LOAD_NAME, env.LOAD_PLAIN, env.LOAD_ORDERED];
const [workers, pause] = [Number(env.LOAD_WORKERS), Number(env.LOAD_PAUSE_MS)];
// What a holder hears when the link of its session is gone, and the lock with it. The library has no code for the close of
// a connection that says amqp:connection:forced.
const codes = new Set(['SessionLockLost', 'SessionCannotBeLocked', 'ServiceCommunicationProblem']);
const lost = (err) => codes.has(err.code) || /^ConnectionForcedError/.test(err.message) || unopened(err);
// A call that begins between the close of a connection and the end of its socket opens the connection anew. The library
// rhea-promise takes that end for a failure of the new connection. The error is no AMQP error, and is not tried again. Nothing
// was sent, so the application calls again.
const unopened = (err) => err.message === 'Failed to connect' && err.code === undefined;
const uncalled = 'calls that ended with the socket of a connection before';

let stopped = false;
let ended = false;
const sleep = (ms) => new Promise((r) => { setTimeout(r, ms); });
const say = (...fields) => process.stdout.write(`${fields.map((f) => String(f).replace(/\s+/g, ' ')).join('\t')}\n`);
const failed = (what, err) => say('failed', what, `${err.name} ${err.code}: ${err.message}`);
const client = () => new ServiceBusClient(env.SERVICEBUS_CONNECTION_STRING);

async function produce(queue, series, session) {
  const sender = client().createSender(queue);
  for (let n = 1; !stopped; n++) {
    await sleep(pause);
    const body = `${series} ${n}`;
    for (let again = true; again;) {
      again = false;
      try {
        await sender.sendMessages({ body, messageId: body, ...(session ? { sessionId: series } : {}) });
        say('sent', queue, body);
      } catch (err) {
        if (unopened(err)) {
          say('note', uncalled);
          again = true;
          continue;
        }
        say('unsent', queue, body);
        failed('send', err);
      }
    }
  }
}

async function settle(receiver, queue, got) {
  for (const m of got) {
    say('received', queue, m.body, m.sequenceNumber);
    try {
      await receiver.completeMessage(m);
      say('done', queue, m.body);
    } catch (err) {
      if (queue === ordered && lost(err)) throw err;
      failed('complete', err);
    }
  }
}

async function consume() {
  const receiver = client().createReceiver(plain);
  while (!ended) {
    try {
      await settle(receiver, plain, await receiver.receiveMessages(10, { maxWaitTimeInMs: 2000 }));
    } catch (err) {
      if (unopened(err)) say('note', uncalled);
      else if (!ended) failed('receive', err);
      await sleep(100);
    }
  }
}

// hold accepts the next session over and over, takes what it has, and gives it back.
async function hold() {
  const c = client();
  while (!ended) {
    let receiver;
    try {
      receiver = await c.acceptNextSession(ordered);
      for (let i = 0; i < 25; i++) {
        const got = await receiver.receiveMessages(1, { maxWaitTimeInMs: 2000 });
        if (got.length === 0) break;
        await settle(receiver, ordered, got);
      }
    } catch (err) {
      if (ended || err.code === 'ServiceTimeout') continue;
      if (lost(err)) say('note', 'sessions that ended with their links');
      else failed('hold a session', err);
      await sleep(100);
    } finally {
      if (receiver) await receiver.close().catch(() => {}); // a link that is gone is closed
    }
  }
}

// Node.js ends the program when a promise of the library is rejected and nobody waits for it. It does not print an AMQP error, so
// this handler does.
process.on('unhandledRejection', (reason) => {
  process.stderr.write(`unhandled rejection: ${inspect(reason)} ${JSON.stringify(reason)} ${reason && reason.stack}\n`);
  process.exit(1);
});

const makers = [];
for (let i = 0; i < workers; i++) {
  makers.push(produce(plain, `${name}-series-${i}`, false), produce(ordered, `${name}-session-${i}`, true));
  consume();
  hold();
}
say('note', 'runs');
const input = readline.createInterface({ input: process.stdin });
input.on('line', async (line) => {
  if (line === 'stop') {
    stopped = true;
    await Promise.all(makers);
    say('stopped');
    return;
  }
  ended = true;
  stopped = true;
  await sleep(3000);
  process.stdout.write('', () => process.exit(0)); // an accept may wait for a minute
});
