// Sends in two phases without transactions. Phase 1 stores a message where no worker looks. Phase 2 makes it ready or
// deletes it, as the local transaction has decided, also after a crash in between.
const { randomUUID } = require("node:crypto");
const { ServiceBusClient } = require("@azure/service-bus");

const prepared = "twophase-prepared";
const ready = "twophase-ready"; // detects duplicates

// Is phase 1 of three orders, each with its local transaction.
async function prepare(client, committed) {
  const sender = client.createSender(prepared);
  for (const order of ["order 1", "order 2", "order 3"]) {
    const messageId = randomUUID();
    await sender.sendMessages({ body: order, messageId });
    if (order === "order 1") {
      committed.add(messageId);
      console.log(`${order}: prepared, committed here`);
    } else if (order === "order 2") {
      console.log(`${order}: prepared, rolled back here`);
    } else {
      console.log(`${order}: prepared, and the process stops before it decides`);
    }
  }
  await sender.close();
}

// Is phase 2 of so many messages. It may stop anywhere and be done again: a second send has the same id.
async function finish(client, committed, count) {
  const receiver = client.createReceiver(prepared);
  const sender = client.createSender(ready);
  for (let finished = 0; finished < count; ) {
    for (const message of await receiver.receiveMessages(1)) {
      if (committed.has(message.messageId)) {
        await sender.sendMessages({ body: message.body, messageId: message.messageId });
        console.log(`${message.body}: is ready`);
      } else {
        console.log(`${message.body}: is deleted`);
      }
      await receiver.completeMessage(message);
      finished++;
    }
  }
  await sender.close();
  await receiver.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const committed = new Set(); // stands for a table of your database: the orders whose transaction has committed
    await prepare(client, committed);
    await finish(client, committed, 3); // by the next process
    const receiver = client.createReceiver(ready);
    for (const message of await receiver.receiveMessages(10)) {
      console.log(`${message.body}: received`);
      await receiver.completeMessage(message);
    }
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
