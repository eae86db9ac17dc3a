// Sells three tickets to the first three who asked. Two clerks work side by side and finish in any order; the sequence
// numbers of the requests decide.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "tickets-requests";
const tickets = 3;
const buyers = ["ann", "bob", "ann", "cid", "dan", "eve"]; // they ask in this order; ann is impatient

// Is a clerk who notes so many requests: who asks, and with which number.
async function collect(client, requests) {
  const receiver = client.createReceiver(queue);
  const noted = [];
  while (noted.length < requests) {
    for (const message of await receiver.receiveMessages(1)) {
      noted.push({ number: message.sequenceNumber, buyer: message.body });
      await receiver.completeMessage(message);
    }
  }
  await receiver.close();
  return noted;
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    for (const body of buyers) await sender.sendMessages({ body });
    const notes = await Promise.all([collect(client, buyers.length / 2), collect(client, buyers.length / 2)]);
    const inOrder = notes.flat().sort((a, b) => a.number.compare(b.number));
    // A set has each buyer once, by the first request.
    [...new Set(inOrder.map((note) => note.buyer))].forEach((buyer, i) => {
      console.log(i < tickets ? `${buyer}: ticket ${i + 1}` : `${buyer}: sold out`);
    });
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
