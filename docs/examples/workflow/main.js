// Runs an order as a state machine. Its state is the state of its session, so another process goes on where one has
// crashed.
const { spawnSync } = require("node:child_process");
const { ServiceBusClient } = require("@azure/service-bus");

const queue = "workflow-orders";
// The state machine: the state in which each message leaves an order.
const next = { order: "ordered", pay: "paid", ship: "shipped", close: "closed" };

async function start(client) {
  const sender = client.createSender(queue);
  for (const step of Object.keys(next)) {
    await sender.sendMessages({ body: "", sessionId: "order-7", messageId: step });
  }
  await sender.close();
  const crashed = spawnSync(process.execPath, [__filename, "pay"], { stdio: "inherit" });
  console.log(`the process ended with code ${crashed.status}`);
  const { status } = spawnSync(process.execPath, [__filename, "never"], { stdio: "inherit" });
  if (status !== 0) throw new Error(`the second process ended with code ${status}`);
}

async function handle(client, crash) {
  const session = await client.acceptNextSession(queue); // waits until the session of a dead process is free
  // What the session keeps: a state, and the id of the last message whose work is in it.
  let order = (await session.getSessionState()) ?? { state: "new", last: null };
  console.log(`${session.sessionId}: a process finds it ${order.state}`);
  while (order.state !== "closed") {
    for (const message of await session.receiveMessages(1)) {
      const step = message.messageId;
      if (step === order.last) {
        console.log(`${step}: skipped, the state has it`);
      } else {
        order = { state: next[step], last: step };
        // A session without messages and state is gone.
        await session.setSessionState(order.state === "closed" ? null : order);
        console.log(`${step}: the order is ${order.state}`);
      }
      if (step === crash) process.exit(3); // between the state and the completion
      await session.completeMessage(message);
    }
  }
  await session.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  const [, , crash] = process.argv; // of a process that handles orders; it crashes in the middle of that step
  try {
    await (crash ? handle(client, crash) : start(client));
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
