// Three messages and two consumers, of which the first is slow. Without sessions the messages are handed out in order
// and finished in another one. In a session they are finished in order, too.
const { ServiceBusClient } = require("@azure/service-bus");

async function send(client, queue) {
  const sender = client.createSender(queue);
  for (const body of ["1", "2", "3"]) {
    await sender.sendMessages({ body, sessionId: "set-1" }); // a queue without sessions takes the id for a property
  }
  await sender.close();
}

// Takes and completes so many messages, and returns them in the order in which they were finished.
async function finish(receiver, count) {
  const finished = [];
  while (finished.length < count) {
    for (const message of await receiver.receiveMessages(1)) {
      await receiver.completeMessage(message);
      finished.push(message.body);
    }
  }
  return finished;
}

async function without(client) {
  await send(client, "order-plain");
  const slow = client.createReceiver("order-plain");
  const quick = client.createReceiver("order-plain");
  const [first] = await slow.receiveMessages(1);
  const finished = await finish(quick, 2); // while the slow consumer works on the first
  await slow.completeMessage(first);
  console.log("without a session:", ...finished, first.body);
  await slow.close();
  await quick.close();
}

async function within(client) {
  await send(client, "order-session");
  const slow = await client.acceptNextSession("order-session");
  try {
    await client.acceptSession("order-session", "set-1");
    throw new Error("two consumers hold one session");
  } catch (error) {
    if (error.code !== "SessionCannotBeLocked") throw error;
    console.log("the second consumer gets nothing of the session");
  }
  console.log("within a session:", ...(await finish(slow, 3)));
  await slow.close();
}

async function main() {
  // An accept of a held session is tried again for a minute and a half, unless the client says how often.
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, { retryOptions: { maxRetries: 1, retryDelayInMs: 1000 } });
  try {
    await without(client);
    await within(client);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
