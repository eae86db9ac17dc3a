// A worker does each job once, although two jobs reach it twice. The scheduler gives each message the id of its job.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "duplicates-jobs";

// Handles so many deliveries. Done stands for a table that is written in the same transaction as the work.
async function work(receiver, deliveries) {
  const done = new Set();
  while (deliveries > 0) {
    for (const message of await receiver.receiveMessages(1)) {
      deliveries--;
      const job = message.messageId;
      const delivery = message.deliveryCount + 1; // this SDK counts the deliveries before this one
      if (done.has(job)) {
        console.log(`${job}: skipped, delivery ${delivery}`);
        await receiver.completeMessage(message);
        continue;
      }
      console.log(`${job}: done, delivery ${delivery}`);
      done.add(job);
      if (job === "job-2") {
        await receiver.abandonMessage(message); // as if the lock had been lost before the completion: it comes again
      } else {
        await receiver.completeMessage(message);
      }
    }
  }
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    // The scheduler was restarted and sends job-1 a second time.
    for (const job of ["job-1", "job-2", "job-1"]) {
      await sender.sendMessages({ body: "", messageId: job });
    }
    await work(client.createReceiver(queue), 4);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
