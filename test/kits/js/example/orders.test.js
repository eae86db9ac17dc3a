const assert = require('node:assert');
const { test, before, after } = require('node:test');
const { ServiceBusClient } = require('@azure/service-bus');
const { start } = require('busbartest');

let broker;
before(async () => { broker = await start(); });
after(() => broker.stop());

test('an order is received', async () => {
  const queue = await broker.queue('orders', { LockDuration: 'PT5S', MaxDeliveryCount: 1 });
  const client = new ServiceBusClient(broker.connectionString);
  await client.createSender(queue).sendMessages({ body: 'an order' });
  const [message] = await client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 20_000 });
  assert.equal(message.body, 'an order');
  await client.close();
});
