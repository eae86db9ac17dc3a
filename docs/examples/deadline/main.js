// Judges essays by the time at which the broker took them, long after that time.
const { setTimeout: sleep } = require("node:timers/promises");
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "deadline-essays";

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    await sender.sendMessages({ body: "ann" });
    const deadline = new Date(Date.now() + 1000);
    await sleep(2000);
    await sender.sendMessages({ body: "bob" });
    console.log("the deadline is over, the essays are read now");
    const receiver = client.createReceiver(queue);
    for (let read = 0; read < 2; ) {
      for (const essay of await receiver.receiveMessages(1)) {
        console.log(`${essay.body}: ${essay.enqueuedTimeUtc <= deadline ? "in time" : "too late"}`);
        await receiver.completeMessage(essay);
        read++;
      }
    }
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
