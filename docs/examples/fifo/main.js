// Hands over two files as sequences of messages that travel interleaved through one queue. Each sequence is a session:
// one consumer gets it whole and in order, whatever the other consumers do.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "fifo-files";

// Sends two sequences, one message of each in turn. The subject tells where a sequence begins and ends.
async function send(client) {
  const sender = client.createSender(queue);
  for (const [i, subject] of ["start", "content", "content", "end"].entries()) {
    for (const file of ["letter", "report"]) {
      await sender.sendMessages({ body: `${file}, part ${i}`, sessionId: file, subject });
    }
  }
  await sender.close();
}

// Takes a session that nobody holds, reads it from start to end and gives it back at once.
async function consume(client) {
  const session = await client.acceptNextSession(queue);
  const lines = [];
  let start;
  try {
    for (;;) {
      for (const message of await session.receiveMessages(1)) {
        if (message.subject === "start") start = message.sequenceNumber;
        if (start === undefined) throw new Error("a sequence without a start");
        const behind = message.sequenceNumber.subtract(start);
        lines.push(`${message.subject.padEnd(7)} ${message.body}, number ${behind} behind the start`);
        await session.completeMessage(message);
        if (message.subject === "end") return lines.join("\n");
      }
    }
  } finally {
    await session.close();
  }
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    await send(client);
    const files = await Promise.all([consume(client), consume(client)]);
    console.log(files.sort().join("\n"));
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
