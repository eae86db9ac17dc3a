// Sends the same number of messages one at a time and ten at a time. The outcome of each send is looked at, in both
// cases.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "pipeline-readings";
const count = 200;
const inFlight = 10;

// A semaphore: take waits for a place, give gives it back.
class Semaphore {
  constructor(places) {
    this.places = places;
    this.waiting = [];
  }
  async take() {
    if (this.places > 0) this.places--;
    else await new Promise((resolve) => this.waiting.push(resolve));
  }
  give() {
    if (this.waiting.length > 0) this.waiting.shift()();
    else this.places++;
  }
}

// Has so many messages under way at a time. A send takes a place before it begins, and gives it back when its outcome is
// there.
async function send(sender, atATime) {
  const semaphore = new Semaphore(atATime);
  const outcomes = [];
  for (let i = 0; i < count; i++) {
    await semaphore.take();
    outcomes.push(sender.sendMessages({ body: `reading ${i}` }).finally(() => semaphore.give()));
  }
  await Promise.all(outcomes);
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    for (const atATime of [1, inFlight]) {
      const began = Date.now();
      await send(sender, atATime);
      console.log(`${count} messages accepted, ${atATime} at a time: ${Date.now() - began} ms`);
    }
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
