// Receives the same number of messages in both modes and measures them. Then it shows what each mode leaves of a message
// whose worker failed.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "modes-samples";
const count = 200;

async function send(client, n) {
  const sender = client.createSender(queue);
  await sender.sendMessages(Array(n).fill({ body: "sample" }));
  await sender.close();
}

async function measure(client, receiveMode, name) {
  await send(client, count);
  const receiver = client.createReceiver(queue, { receiveMode });
  const began = Date.now();
  for (let received = 0; received < count; ) {
    const messages = await receiver.receiveMessages(20);
    received += messages.length;
    if (receiveMode === "peekLock") {
      for (const message of messages) await receiver.completeMessage(message);
    }
  }
  console.log(`${name}: ${count} messages in ${Date.now() - began} ms`);
  await receiver.close();
}

// A worker takes one more message and fails.
async function fail(client, receiveMode, name) {
  await send(client, 1);
  const receiver = client.createReceiver(queue, { receiveMode });
  const [message] = await receiver.receiveMessages(1);
  if (receiveMode === "peekLock") await receiver.abandonMessage(message);
  const again = await receiver.receiveMessages(1, { maxWaitTimeInMs: 3000 });
  console.log(`${name}: the message of the failed worker is ${again.length > 0 ? "there again" : "lost"}`);
  for (const message of again) await receiver.completeMessage(message);
  await receiver.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    for (const [mode, name] of [["receiveAndDelete", "receive and delete"], ["peekLock", "peek-lock"]]) {
      await measure(client, mode, name);
      await fail(client, mode, name);
    }
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
