// Counts money. The running total is the state of the session. The SDK for JavaScript has no transactions, so the state
// says up to which message it counts. A message that comes again is counted once.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "checkpoint-payments";
const account = "account-1";

async function count(client, stopAt) {
  const session = await client.acceptSession(queue, account);
  try {
    // A total, and the number of the last message in it.
    let checkpoint = (await session.getSessionState()) ?? { total: 0, upTo: "0" };
    for (;;) {
      for (const message of await session.receiveMessages(1)) {
        const amount = message.body;
        if (BigInt(message.sequenceNumber.toString()) <= BigInt(checkpoint.upTo)) {
          console.log(`${amount} came again, the total is ${checkpoint.total} with it`);
        } else {
          checkpoint = { total: checkpoint.total + amount, upTo: message.sequenceNumber.toString() };
          console.log(`${amount} counted, the total is ${checkpoint.total}`);
          await session.setSessionState(checkpoint); // only then may the message be completed
        }
        if (amount === stopAt) {
          console.log("the worker stops before it completes the message");
          return;
        }
        await session.completeMessage(message);
        if (amount === 30) {
          await session.setSessionState(null); // the last: clear the state, or it stays for ever
          return;
        }
      }
    }
  } finally {
    await session.close();
  }
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    await sender.sendMessages([10, 20, 30].map((body) => ({ body, sessionId: account })));
    await sender.close();
    await count(client, 20);
    await count(client);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
