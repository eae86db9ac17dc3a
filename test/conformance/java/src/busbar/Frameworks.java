package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.message;
import static busbar.Env.onTime;
import static busbar.Env.seconds;
import static busbar.Env.texts;
import static busbar.Env.until;

import com.azure.core.exception.ResourceExistsException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.CompleteOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * What frameworks of other languages do at start and at work, operation by operation: their quotas, their
 * names, and the order in which they ask. The library here is Java's; the requests are the same.
 */
final class Frameworks {
    private static final Duration FIVE_MINUTES = Duration.ofMinutes(5);

    private Frameworks() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("like-masstransit", Frameworks::massTransit);
        all.put("like-nservicebus", Frameworks::nServiceBus);
        all.put("like-rebus", Frameworks::rebus);
        all.put("like-wolverine", Frameworks::wolverine);
        all.put("like-dapr", Frameworks::dapr);
        all.put("like-functions", Frameworks::functions);
    }

    /** Creates what is missing, as every instance of an application does at the same time. */
    private static void ensureQueue(Env e, String name, CreateQueueOptions options) {
        var a = e.admin(0);
        if (a.getQueueExists(name)) {
            return;
        }
        a.createQueue(name, options);
        e.keep(() -> e.admin(0).deleteQueue(name));
        try {
            e.admin(1).createQueue(name, options); // the other instance, a moment too late
            throw new AssertionError("created twice");
        } catch (ResourceExistsException expected) {
            check(e.admin(1).getQueueExists(name), "neither created nor there");
        }
    }

    private static void ensureTopic(Env e, String name, CreateTopicOptions options) {
        var a = e.admin(0);
        if (!a.getTopicExists(name)) {
            a.createTopic(name, options);
            e.keep(() -> e.admin(0).deleteTopic(name));
        }
    }

    /** Queues that live as long as the calendar, topics named after types, and subscriptions that forward. */
    private static void massTransit(Env e) throws Exception {
        var lasting = Duration.ofDays(427);
        String queue = e.name("order-service");
        var options = new CreateQueueOptions().setLockDuration(FIVE_MINUTES).setMaxDeliveryCount(5)
            .setAutoDeleteOnIdle(lasting).setDefaultMessageTimeToLive(Duration.ofDays(366))
            .setDeadLetteringOnMessageExpiration(true).setBatchedOperationsEnabled(true);
        ensureQueue(e, queue, options);
        ensureQueue(e, queue + "_error", new CreateQueueOptions(e.admin(0).getQueue(queue)));
        equal(e.admin(1).getQueue(queue + "_error").getAutoDeleteOnIdle(), lasting, "idle time");
        String topic = e.name("Contracts.Orders") + "~OrderSubmitted";
        ensureTopic(e, topic, new CreateTopicOptions().setAutoDeleteOnIdle(lasting)
            .setDefaultMessageTimeToLive(Duration.ofDays(366)).setBatchedOperationsEnabled(true));
        String name = "order-service~1";
        check(!e.admin(0).getSubscriptionExists(topic, name), "a subscription that nobody created");
        e.admin(0).createSubscription(topic, name, new CreateSubscriptionOptions().setForwardTo(queue)
            .setLockDuration(FIVE_MINUTES).setAutoDeleteOnIdle(lasting).setMaxDeliveryCount(5));
        var found = e.admin(1).getSubscription(topic, name);
        check(found.getForwardTo().endsWith(queue), "forwards to " + found.getForwardTo());
        e.admin(0).updateSubscription(found); // as it is, at every start
        equal(e.admin(1).listRules(topic, name).stream().count(), 1L, "rules");

        e.keep(e.builder(0).sender().topicName(topic).buildClient()).sendMessage(message("{}")
            .setContentType("application/vnd.masstransit+json").setMessageId("m"));
        var r = e.receiver(1, queue);
        ServiceBusReceivedMessage m = e.one(r);
        equal(m.getContentType(), "application/vnd.masstransit+json", "content type");
        e.sender(1, queue + "_error").sendMessage(new ServiceBusMessage(m)); // a consumer that failed
        r.complete(m);
        equal(e.one(e.receiver(0, queue + "_error")).getMessageId(), "m", "moved");
    }

    /** No limit of deliveries, rules over the data connection, and everything of a message in one transaction. */
    private static void nServiceBus(Env e) throws Exception {
        var options = new CreateQueueOptions().setLockDuration(FIVE_MINUTES).setMaxDeliveryCount(Integer.MAX_VALUE)
            .setMaxSizeInMegabytes(5120).setBatchedOperationsEnabled(true);
        String in = e.name("Sales.Endpoint");
        String out = e.name("Shipping.Endpoint");
        String audit = e.name("audit");
        for (String q : List.of(in, out, audit)) {
            ensureQueue(e, q, options);
        }
        equal(e.admin(1).getQueue(in).getMaxDeliveryCount(), Integer.MAX_VALUE, "deliveries");
        String topic = e.name("bundle-1");
        ensureTopic(e, topic, new CreateTopicOptions().setMaxSizeInMegabytes(5120).setBatchedOperationsEnabled(true));
        Api.subscribe(e.admin(0), topic, "sales", "$default", new CreateSubscriptionOptions()
            .setLockDuration(FIVE_MINUTES).setForwardTo(in).setMaxDeliveryCount(Integer.MAX_VALUE)
            .setEnableDeadLetteringOnFilterEvaluationExceptions(false), new CreateRuleOptions(new FalseRuleFilter()));
        var rules = Api.Rules.of(e, e.builder(1), topic, "sales");
        rules.create("OrderPlaced", new CreateRuleOptions(
            new SqlRuleFilter("[NServiceBus.EnclosedMessageTypes] LIKE '%Sales.OrderPlaced%'")));
        rules.create("Dropped", new CreateRuleOptions(new SqlRuleFilter("1=1")));
        rules.delete("Dropped");

        var publisher = e.keep(e.builder(0).sender().topicName(topic).buildClient());
        for (String type : List.of("Sales.Other", "Sales.OrderPlaced")) {
            var m = message(type).setSubject(type);
            m.getApplicationProperties().put("NServiceBus.EnclosedMessageTypes", type + ", Sales.Messages");
            publisher.sendMessage(m);
        }
        ServiceBusClientBuilder b = e.transacting(1).enableCrossEntityTransactions();
        var r = e.keep(b.receiver().queueName(in).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
        var m = e.one(r);
        equal(m.getBody().toString(), "Sales.OrderPlaced", "chosen");
        var tx = r.createTransaction();
        for (String q : List.of(out, audit)) {
            e.keep(b.sender().queueName(q).buildClient()).sendMessage(message("for " + q), tx);
        }
        r.complete(m, new CompleteOptions().setTransactionContext(tx));
        r.commitTransaction(tx);
        for (String q : List.of(out, audit)) {
            equal(e.one(e.receiver(0, q)).getBody().toString(), "for " + q, "sent");
        }
        equal(texts(e.receiver(0, in).peekMessages(5, 1)), List.of(), "left");
    }

    /** A lock of five minutes that is renewed long before, and messages that come later. */
    private static void rebus(Env e) throws Exception {
        String queue = e.name("rebus-input");
        ensureQueue(e, queue, new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(100));
        String topic = e.name("mycompany.messages") + "__mycompany_contracts";
        ensureTopic(e, topic, new CreateTopicOptions());
        e.admin(0).createSubscription(topic, "rebus-input", new CreateSubscriptionOptions());
        var s = e.admin(0).getSubscription(topic, "rebus-input");
        e.admin(0).updateSubscription(s.setForwardTo(queue).setUserMetadata("Events"));
        var later = seconds(2);
        e.send(queue, message("deferred").setScheduledEnqueueTime(later)); // its way to defer
        e.keep(e.builder(0).sender().topicName(topic).buildClient()).sendMessage(message("event"));
        var r = e.receiver(1, queue);
        var got = e.take(r, 2);
        equal(texts(got).stream().sorted().toList(), List.of("deferred", "event"), "messages");
        onTime(later);
        var until = got.get(0).getLockedUntil();
        Thread.sleep(20_000); // its renewal
        check(r.renewMessageLock(got.get(0)).isAfter(until), "the lock was not renewed");
        Thread.sleep(12_000); // longer than the first lock
        r.complete(got.get(0));
    }

    /** A queue of its own for each node that goes with it, and batches. */
    private static void wolverine(Env e) throws Exception {
        String control = e.name("wolverine.control.1");
        ensureQueue(e, control, new CreateQueueOptions().setAutoDeleteOnIdle(FIVE_MINUTES)
            .setDefaultMessageTimeToLive(Duration.ofMinutes(1)).setMaxDeliveryCount(1));
        String queue = e.name("orders");
        String graves = e.name("wolverine-dead-letter-queue");
        ensureQueue(e, queue, new CreateQueueOptions().setSessionRequired(true).setLockDuration(FIVE_MINUTES));
        ensureQueue(e, graves, new CreateQueueOptions());
        var s = e.sender(0, queue);
        var batch = s.createMessageBatch();
        for (int i = 0; i < 50; i++) {
            check(batch.tryAddMessage(Env.in("customer-" + i % 2, "m" + i).setMessageId("id-" + i)), "the batch is full");
        }
        s.sendMessages(batch);
        for (String session : List.of("customer-0", "customer-1")) {
            var r = e.accept(1, queue, session);
            var got = e.take(r, 25);
            var first = got.get(0);
            e.sender(1, graves).sendMessage(new ServiceBusMessage(first));
            Env.complete(r, got);
            equal(first.getBody().toString(), session.equals("customer-0") ? "m0" : "m1", "first of its session");
            r.close();
        }
        e.send(control, message("ping"));
        equal(e.one(e.receiver(1, control)).getBody().toString(), "ping", "control");
        equal(e.take(e.receiver(0, graves), 2).size(), 2, "dead letters");
    }

    /** Asks before it creates, works on several messages at once and renews their locks all the time. */
    private static void dapr(Env e) throws Exception {
        String topic = e.name("orders");
        ensureTopic(e, topic, new CreateTopicOptions().setBatchedOperationsEnabled(true));
        check(!e.admin(0).getSubscriptionExists(topic, "the-app"), "a subscription that nobody created");
        e.admin(0).createSubscription(topic, "the-app", new CreateSubscriptionOptions()
            .setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(2).setBatchedOperationsEnabled(true)
            .setDeadLetteringOnMessageExpiration(true));
        var s = e.keep(e.builder(0).sender().topicName(topic).buildClient());
        List<ServiceBusMessage> bulk = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            bulk.add(message("event " + i).setContentType("application/cloudevents+json"));
        }
        s.sendMessages(bulk);
        var r = e.keep(e.builder(1).receiver().topicName(topic).subscriptionName("the-app").disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        var got = e.take(r, 10);
        for (int i = 0; i < 2; i++) {
            Thread.sleep(20_000); // all active locks, every 20 s
            got.forEach(r::renewMessageLock);
        }
        r.abandon(got.get(0)); // the application answered RETRY
        got.subList(1, 10).forEach(r::complete);
        var again = e.one(r);
        equal(again.getDeliveryCount(), 1L, "count");
        r.complete(again);
        equal(texts(r.peekMessages(5, 1)), List.of(), "left");
    }

    /** A host that receives and scales by what it sees, and a worker that settles over another connection. */
    private static void functions(Env e) throws Exception {
        String queue = e.queue(o -> o.setLockDuration(Duration.ofMinutes(1)));
        for (int i = 0; i < 6; i++) {
            e.send(queue, message("job " + i));
        }
        var scale = e.receiver(2, queue);
        until("the scale controller sees them", () ->
            e.admin(0).getQueueRuntimeProperties(queue).getActiveMessageCount() == 6);
        equal(scale.peekMessages(1, 1).stream().count(), 1L, "peeked");
        List<ServiceBusReceivedMessage> seen = new CopyOnWriteArrayList<>();
        var host = e.keep(e.builder(0).processor().queueName(queue).disableAutoComplete().maxConcurrentCalls(6)
            .prefetchCount(6).processMessage(c -> seen.add(c.getMessage())).processError(x -> { })
            .buildProcessorClient());
        host.start();
        until("six invocations", () -> seen.size() == 6);
        var worker = e.receiver(1, queue); // by token: it has no link of its own to them
        worker.deadLetter(seen.get(0));
        seen.subList(1, 6).forEach(worker::complete);
        until("nothing is left", () -> e.admin(0).getQueueRuntimeProperties(queue).getActiveMessageCount() == 0);
        equal(e.one(e.deadLetters(2, queue)).getBody().toString(), seen.get(0).getBody().toString(), "dead letter");
    }
}
