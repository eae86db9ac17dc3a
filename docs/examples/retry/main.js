// Tries failed calls again, later each time. The message of the next attempt is scheduled, so the worker does other
// things meanwhile; the last attempt ends in the dead-letter queue.
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "retry-calls";
const attempts = 3;

function call(name, attempt) {
  if (name !== "busy" || attempt < 3) throw new Error("no answer");
}

// Makes one attempt and tells whether it was the last.
async function work(sender, receiver, message) {
  const name = message.body;
  const attempt = message.applicationProperties?.attempt ?? 1;
  try {
    call(name, attempt);
  } catch (error) {
    if (attempt === attempts) {
      console.log(`${name}: attempt ${attempt}: ${error.message}; to the dead letters`);
      await receiver.deadLetterMessage(message, {
        deadLetterReason: "TooManyAttempts",
        deadLetterErrorDescription: error.message,
      });
      return true;
    }
    const delay = 2 ** (attempt - 1);
    console.log(`${name}: attempt ${attempt}: ${error.message}; again in ${delay}s`);
    const again = { body: name, messageId: message.messageId, applicationProperties: { attempt: attempt + 1 } };
    await sender.scheduleMessages(again, new Date(Date.now() + delay * 1000));
    await receiver.completeMessage(message); // only now: a crash before it repeats an attempt, and loses none
    return false;
  }
  console.log(`${name}: attempt ${attempt} succeeded`);
  await receiver.completeMessage(message);
  return true;
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    const receiver = client.createReceiver(queue);
    // The first answers at the third call, the second never.
    for (const body of ["busy", "gone"]) {
      await sender.sendMessages({ body });
      for (let over = false; !over; ) {
        for (const message of await receiver.receiveMessages(1)) over = await work(sender, receiver, message);
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
