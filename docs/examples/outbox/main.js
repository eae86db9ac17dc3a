// Sends what a database has decided. An order and its message are written in one local transaction. A relay sends the
// messages afterwards, as often as it must, and the queue drops what it has already.
const { randomUUID } = require("node:crypto");
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "outbox-orders"; // detects duplicates

// Sends the rows that are not noted as sent, and notes each when its outcome is there.
async function relay(client, outbox, stopAt) {
  const sender = client.createSender(queue);
  try {
    for (const row of outbox.filter((row) => !row.sent)) {
      await sender.sendMessages({ body: row.body, messageId: row.id });
      console.log(`${row.body}: sent`);
      if (row.body === stopAt) {
        console.log("the relay stops before it notes that");
        return;
      }
      row.sent = true;
    }
  } finally {
    await sender.close();
  }
}

// Shows all that the queue has.
async function receive(client) {
  const receiver = client.createReceiver(queue);
  for (let received = 0; received < 3; ) {
    for (const message of await receiver.receiveMessages(1)) {
      console.log(`${message.body}: received`);
      await receiver.completeMessage(message);
      received++;
    }
  }
  console.log(`${(await receiver.peekMessages(10)).length} messages are left`);
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    // The array stands for a table of your database. The id of a message is that of its row.
    const outbox = [1, 2, 3].map((i) => ({ id: randomUUID(), body: `order ${i}`, sent: false }));
    console.log("3 orders and their messages are committed");
    await relay(client, outbox, "order 2"); // it stops before it notes that the second message was sent
    await relay(client, outbox);
    await receive(client);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
