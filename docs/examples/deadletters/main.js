// A worker dead-letters an order that it cannot read, and a repairer reads dead letters, repairs them and sends them
// again.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "deadletters-orders";

// Handles so many orders. To try again would not help an amount that is no number, so it is rejected at once.
async function work(client, orders) {
  const receiver = client.createReceiver(queue);
  while (orders > 0) {
    for (const message of await receiver.receiveMessages(1)) {
      orders--;
      const amount = Number(message.body);
      if (Number.isNaN(amount)) {
        console.log(`${message.messageId}: rejected`);
        await receiver.deadLetterMessage(message, {
          deadLetterReason: "NoNumber",
          deadLetterErrorDescription: `"${message.body}" is no number`,
        });
      } else {
        console.log(`${message.messageId}: paid ${amount}`);
        await receiver.completeMessage(message);
      }
    }
  }
  await receiver.close();
}

// Repairs one dead letter. It completes the dead letter after the new message is stored: a crash in between leaves both,
// not neither.
async function repair(client, sender) {
  const receiver = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [dead] = await receiver.receiveMessages(1);
  const why = `${dead.deadLetterReason}, ${dead.deadLetterErrorDescription}`;
  console.log(`${dead.messageId}: ${why}; sent again as 20`);
  await sender.sendMessages({ body: "20", messageId: dead.messageId });
  await receiver.completeMessage(dead);
  await receiver.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    for (const amount of ["10", "twenty"]) {
      await sender.sendMessages({ body: amount, messageId: `order-${amount}` });
    }
    await work(client, 2);
    await repair(client, sender);
    await work(client, 1);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
