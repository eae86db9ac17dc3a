package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.message;
import static busbar.Env.onTime;
import static busbar.Env.seconds;
import static busbar.Env.texts;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Transactions of senders and receivers of one connection: clients of one builder share theirs. */
final class Transactions {
    private Transactions() {
    }

    private static ServiceBusSenderClient sender(Env e, ServiceBusClientBuilder b, String queue) {
        return e.keep(b.sender().queueName(queue).buildClient());
    }

    private static ServiceBusReceiverClient receiver(Env e, ServiceBusClientBuilder b, String queue) {
        return e.keep(b.receiver().queueName(queue).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient());
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        Map<String, Runner.Scenario<Env>> some = new LinkedHashMap<>();
        inOneQueue(some);
        settling(some);
        across(some);
        some.forEach((id, scenario) -> all.put(id, Api.transacting(scenario)));
    }

    private static void inOneQueue(Map<String, Runner.Scenario<Env>> all) {
        all.put("transaction-commit", e -> {
            String q = e.queue();
            e.send(q, message("in"));
            var b = e.transacting(1);
            var s = sender(e, b, q);
            var r = receiver(e, b, q);
            var other = e.receiver(0, q);
            var m = e.one(r);
            var tx = Api.begin(s::createTransaction);
            Api.send(s, List.of(message("out-1"), message("out-2")), tx);
            r.complete(m, new CompleteOptions().setTransactionContext(tx));
            equal(texts(other.peekMessages(10, 1)), List.of("in"), "before the commit there is");
            s.commitTransaction(tx);
            equal(texts(other.peekMessages(10, 1)), List.of("out-1", "out-2"), "after it there is");
            fails(null, () -> s.commitTransaction(tx));
        });
        all.put("transaction-rollback", e -> {
            String q = e.queue(o -> o.setLockDuration(Duration.ofSeconds(15)));
            e.send(q, message("in"));
            var b = e.transacting(1);
            var s = sender(e, b, q);
            var r = receiver(e, b, q);
            var m = e.one(r);
            var tx = Api.begin(s::createTransaction);
            s.sendMessage(message("out"), tx);
            r.complete(m, new CompleteOptions().setTransactionContext(tx));
            s.rollbackTransaction(tx);
            equal(texts(e.receiver(0, q).peekMessages(10, 1)), List.of("in"), "after the rollback there is");
            var again = e.one(e.receiver(0, q)); // when its lock has run out: the library itself refuses to settle it again
            equal(again.getBody() + " " + again.getDeliveryCount(), "in 1", "again");
        });
        all.put("transaction-schedule", e -> {
            String q = e.queue();
            var b = e.transacting(1);
            var s = sender(e, b, q);
            var other = e.receiver(0, q);
            var at = seconds(4);
            var tx = Api.begin(s::createTransaction);
            var dropped = s.scheduleMessage(message("dropped"), at, tx);
            check(dropped > 0, "a number in a transaction is " + dropped);
            s.rollbackTransaction(tx);
            var kept = Api.begin(s::createTransaction);
            var keptNumber = s.scheduleMessage(message("kept"), at, kept);
            check(keptNumber > dropped, "the number after " + dropped + " is " + keptNumber);
            var cancelled = s.scheduleMessage(message("cancelled"), at, kept);
            check(cancelled > keptNumber, "the number after " + keptNumber + " is " + cancelled);
            s.commitTransaction(kept);
            s.cancelScheduledMessage(cancelled);
            var m = e.one(other);
            onTime(at);
            equal(m.getBody().toString(), "kept", "body");
            other.complete(m);
            e.none(other);
        });
    }

    private static void settling(Map<String, Runner.Scenario<Env>> all) {
        all.put("transaction-settle", e -> {
            String q = e.queue();
            e.send(q, message("a"), message("b"), message("c"));
            var b = e.transacting(1);
            var s = sender(e, b, q);
            var r = receiver(e, b, q);
            var got = e.take(r, 3);
            var tx = Api.begin(s::createTransaction);
            r.abandon(got.get(0), new AbandonOptions().setTransactionContext(tx));
            r.defer(got.get(1), new DeferOptions().setTransactionContext(tx));
            r.deadLetter(got.get(2), new DeadLetterOptions().setDeadLetterReason("why").setTransactionContext(tx));
            s.commitTransaction(tx);
            var again = e.one(r);
            equal(again.getBody() + " " + again.getDeliveryCount(), "a 1", "abandoned");
            equal(r.receiveDeferredMessage(2).getBody().toString(), "b", "deferred");
            equal(e.one(e.deadLetters(0, q)).getDeadLetterReason(), "why", "dead-lettered");
        });
        all.put("transaction-session", e -> {
            String q = e.sessionQueue();
            e.send(q, Env.in("S", "in"));
            var b = e.transacting(1);
            var s = sender(e, b, q);
            var r = e.keep(e.keep(b.sessionReceiver().queueName(q).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient()).acceptSession("S"));
            var m = e.one(r);
            var tx = Api.begin(s::createTransaction);
            s.sendMessage(Env.in("S", "out"), tx);
            r.complete(m, new CompleteOptions().setTransactionContext(tx));
            s.commitTransaction(tx);
            var next = e.one(r);
            equal(next.getBody().toString(), "out", "next in the session");
            r.complete(next);
        });
    }

    private static void across(Map<String, Runner.Scenario<Env>> all) {
        all.put("transaction-cross-entity", e -> {
            String in = e.queue();
            String one = e.queue();
            String two = e.queue();
            e.send(in, message("m"));
            var b = e.transacting(1).enableCrossEntityTransactions();
            var r = receiver(e, b, in); // the first to be used is the one that messages go through
            var m = e.one(r);
            var s1 = sender(e, b, one);
            var s2 = sender(e, b, two);
            var tx = Api.begin(r::createTransaction);
            s1.sendMessage(message("to-one"), tx);
            s2.sendMessage(message("to-two"), tx);
            r.complete(m, new CompleteOptions().setTransactionContext(tx));
            equal(texts(e.receiver(0, one).peekMessages(5, 1)), List.of(), "before the commit there is");
            r.commitTransaction(tx);
            equal(e.one(e.receiver(0, one)).getBody().toString(), "to-one", "sent to one");
            equal(e.one(e.receiver(0, two)).getBody().toString(), "to-two", "sent to two");
            equal(texts(e.receiver(0, in).peekMessages(5, 1)), List.of(), "left");
        });
    }
}
