// Order in sessions under the library's default loop, while messages arrive.
'use strict';

const assert = require('node:assert/strict');
const { sleep } = require('./env');

const sessions = 10;
const total = Number(process.env.BUSBAR_MESSAGES || 5000);
const each = total / sessions;

// produce sends the messages of a session one after the other; a failed send is repeated.
async function produce(sender, sessionId, state) {
  for (let n = 1; n <= each && !state.failed; n++) {
    for (;;) {
      try {
        await sender.sendMessages({ sessionId, body: n });
        break;
      } catch (err) {
        if (Date.now() > state.end) throw err;
      }
    }
    if (Math.random() < 1 / 3) await sleep(Math.random() * 4);
  }
}

// drain receives until the session has given all, or its link fails.
async function drain(receiver, sessionId, state) {
  while (state.next[sessionId] <= each) {
    for (const m of await receiver.receiveMessages(10)) {
      assert.ok(m.body <= state.next[sessionId],
        `session ${sessionId}: ${m.body} was handed out before ${state.next[sessionId]}`);
      if (m.body === state.next[sessionId]) state.next[sessionId]++;
      await receiver.completeMessage(m);
    }
  }
}

// consume opens the session at the next node whenever a link is lost.
async function consume(e, queue, sessionId, state) {
  for (let at = Number(sessionId); state.next[sessionId] <= each && !state.failed; at++) {
    const client = e.client(at);
    try {
      await drain(await client.acceptSession(queue, sessionId), sessionId, state);
    } catch (err) {
      if (err instanceof assert.AssertionError || Date.now() > state.end) {
        state.failed = true;
        throw err;
      }
      await sleep(50);
    } finally {
      await client.close().catch(() => {}); // its connection may be gone
    }
  }
}

module.exports = {
  async 'session-order'(e) {
    const queue = await e.sessionQueue();
    const state = { next: {}, failed: false, end: Date.now() + e.limitMs };
    const work = [];
    for (let i = 0; i < sessions; i++) {
      state.next[i] = 1;
      work.push(produce(e.client(i + 1).createSender(queue), String(i), state));
      work.push(consume(e, queue, String(i), state));
    }
    await Promise.all(work);
  },
};
