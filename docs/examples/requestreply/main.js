// Two requesters and one responder. All answers go through one queue; each requester gets its own, for each has a
// session of the reply queue.
const { randomUUID } = require("node:crypto");
const { ServiceBusClient } = require("@azure/service-bus");

const requests = "reply-requests";
const replies = "reply-replies"; // requires sessions

// Accepts its reply session before it sends: a session that is held is given to nobody else.
async function ask(client, name) {
  const instance = randomUUID();
  const session = await client.acceptSession(replies, instance);
  const sender = client.createSender(requests);
  try {
    await sender.sendMessages({ body: name, replyTo: replies, replyToSessionId: instance });
    const [reply] = await session.receiveMessages(1);
    await session.completeMessage(reply);
    return reply.body;
  } finally {
    await sender.close();
    await session.close();
  }
}

// Answers count requests. A request says where its answer goes.
async function respond(client, count) {
  const receiver = client.createReceiver(requests);
  for (let answered = 0; answered < count; ) {
    for (const request of await receiver.receiveMessages(1)) {
      const sender = client.createSender(request.replyTo);
      await sender.sendMessages({
        body: `good day, ${request.body}`,
        sessionId: request.replyToSessionId,
        correlationId: request.messageId,
      });
      await sender.close();
      await receiver.completeMessage(request);
      answered++;
    }
  }
  await receiver.close();
}

async function main() {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  try {
    const [ann, bob] = await Promise.all([ask(client, "ann"), ask(client, "bob"), respond(client, 2)]);
    console.log(`ann was answered: ${ann}`);
    console.log(`bob was answered: ${bob}`);
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
