// Runs logins with a time limit. Each login schedules the message that ends it, and keeps the number of that message in
// the state of its session. It cancels the message when the code comes in time.
const Long = require("long");
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "timer-logins";
const limit = 5; // seconds

// Handles the messages of one user until the user is in or the time is over.
async function login(client, sender, user) {
  const session = await client.acceptSession(queue, user);
  try {
    for (let over = false; !over; ) {
      for (const message of await session.receiveMessages(1)) {
        over = message.subject !== "ask";
        if (message.subject === "ask") {
          const lapse = { body: "", sessionId: user, subject: "lapse" };
          const [number] = await sender.scheduleMessages(lapse, new Date(Date.now() + limit * 1000));
          await session.setSessionState(number.toString());
          console.log(`${user}: has a code for ${limit} s`);
        } else if (message.subject === "enter") {
          await sender.cancelScheduledMessages(Long.fromString(await session.getSessionState()));
          console.log(`${user}: is in, the timer is cancelled`);
        } else {
          console.log(`${user}: the code has lapsed`);
        }
        await session.completeMessage(message);
      }
    }
    await session.setSessionState(null);
  } finally {
    await session.close();
  }
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(queue);
    // Ann asks for a code and enters it. Bob asks for one and goes away.
    for (const [user, subject] of [["ann", "ask"], ["ann", "enter"], ["bob", "ask"]]) {
      await sender.sendMessages({ body: "", sessionId: user, subject });
    }
    await login(client, sender, "ann");
    await login(client, sender, "bob");
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
