// Publishes trades. Each subscription gets those that its rule selects, and one rule marks what it passes on.
const { ServiceBusClient } = require("@azure/service-bus");

const topic = "topics-trades";
// Subscriptions and how many of the trades each gets; Config.json has their rules.
const subscriptions = { all: 3, europe: 2, large: 2 };

async function show(client, subscription, count) {
  const receiver = client.createReceiver(topic, subscription);
  for (let shown = 0; shown < count; ) {
    for (const message of await receiver.receiveMessages(1)) {
      const { region, amount, desk = "no desk" } = message.applicationProperties;
      console.log(`${subscription}: ${region} ${amount}, ${desk}`);
      await receiver.completeMessage(message);
      shown++;
    }
  }
  const left = await receiver.peekMessages(10);
  if (left.length > 0) throw new Error(`${subscription} has ${left.length} messages more than its rule selects`);
  await receiver.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const sender = client.createSender(topic);
    for (const [region, amount] of [["eu", 500], ["eu", 5000], ["us", 2000]]) {
      await sender.sendMessages({ body: "", subject: "trade", applicationProperties: { region, amount } });
    }
    for (const [subscription, count] of Object.entries(subscriptions)) await show(client, subscription, count);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
