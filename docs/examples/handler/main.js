// Runs a handler whose work takes longer than the lock of its message. The SDK runs the loop: it renews the lock,
// completes when the handler is done and abandons when it fails.
const { setTimeout: sleep } = require("node:timers/promises");
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "handler-reports"; // its locks last 10 s
const work = 12_000;
const renewAtAll = 60_000; // a handler that hangs loses its message then

async function write(message) {
  const report = message.body;
  const delivery = message.deliveryCount + 1; // this SDK counts the deliveries before this one
  console.log(`${report}: begins, delivery ${delivery}`);
  if (report === "broken" && delivery === 1) throw new Error("the printer is out of paper");
  if (report === "long") await sleep(work);
  console.log(`${report}: done`);
}

// Runs the handler for so many deliveries.
function handle(receiver, deliveries) {
  return new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        async processMessage(message) {
          try {
            await write(message);
          } catch (error) {
            console.log(`${message.body}: failed: ${error.message}`);
            throw error; // the SDK abandons the message
          } finally {
            if (--deliveries === 0) setImmediate(resolve);
          }
        },
        async processError({ error, errorSource }) {
          if (errorSource !== "processMessageCallback") reject(error);
        },
      },
      { maxConcurrentCalls: 1, autoCompleteMessages: true },
    );
  });
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    for (const body of ["long", "broken"]) await sender.sendMessages({ body });
    const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: renewAtAll });
    await handle(receiver, 3);
    await receiver.close(); // after the last completion
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
