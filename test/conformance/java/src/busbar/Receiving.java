package busbar;

import static busbar.Env.check;
import static busbar.Env.complete;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.message;
import static busbar.Env.texts;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** Receiving, settling and peeking. */
final class Receiving {
    private Receiving() {
    }

    private static String filled(Env e, int n, Consumer<CreateQueueOptions> edit) {
        String q = e.queue(edit);
        e.send(q, bodies(n).stream().map(ServiceBusMessage::new).toArray(ServiceBusMessage[]::new));
        return q;
    }

    private static String filled(Env e, int n) {
        return filled(e, n, o -> { });
    }

    private static List<String> bodies(int n) {
        List<String> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            all.add("m" + i);
        }
        return all;
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        receiving(all);
        settling(all);
        deferring(all);
        deadLetters(all);
        locks(all);
        peeking(all);
        for (String id : List.of("delete-batch", "delete-purge")) {
            all.put(id, e -> {
                throw new Runner.Skip("the library has no deletion of messages");
            });
        }
    }

    private static void receiving(Map<String, Runner.Scenario<Env>> all) {
        all.put("receive-many", e -> {
            String q = filled(e, 20);
            var r = e.receiver(1, q);
            var got = e.take(r, 20);
            equal(texts(got), bodies(20), "bodies");
            complete(r, got);
            e.none(r);
        });
        all.put("receive-waits", e -> {
            String q = e.queue();
            var r = e.receiver(1, q);
            e.none(r); // the link is up
            var waiting = CompletableFuture.supplyAsync(() -> e.one(r));
            Thread.sleep(500);
            e.send(q, message("late"));
            equal(waiting.get().getBody().toString(), "late", "body");
            r.complete(waiting.get());
        });
        all.put("receive-empty", e -> {
            String q = e.queue();
            var r = e.receiver(1, q);
            for (int i = 0; i < 3; i++) {
                equal(texts(r.receiveMessages(5, Duration.ofMillis(300))), List.of(), "bodies");
            }
            e.send(q, message("x"));
            r.complete(e.one(r)); // and the link goes on
        });
        all.put("receive-delete", e -> {
            String q = filled(e, 3);
            var r = e.keep(e.builder(1).receiver().queueName(q).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                .buildClient());
            equal(texts(e.take(r, 3)), bodies(3), "bodies");
            r.close();
            e.none(e.receiver(0, q));
        });
        all.put("receive-delete-settle", e -> {
            String q = filled(e, 2);
            var r = e.keep(e.builder(1).receiver().queueName(q).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                .buildClient());
            var m = e.one(r);
            List<Runnable> settles = List.of(() -> r.complete(m), () -> r.abandon(m), () -> r.defer(m),
                () -> r.deadLetter(m));
            for (int i = 0; i < settles.size(); i++) {
                Throwable t = fails(null, settles.get(i));
                check(t instanceof UnsupportedOperationException, "way " + i + " of settling failed with " + t);
            }
            fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> r.renewMessageLock(m)); // the broker says so
            var locking = e.receiver(0, q); // whatever else is asked for
            var second = e.one(locking);
            equal(second.getBody().toString(), "m1", "body");
            check(second.getLockToken() != null, "no lock token");
            e.none(r);
            locking.complete(second);
        });
        all.put("receive-timeout", e -> {
            String q = e.queue();
            var r = e.receiver(1, q);
            equal(texts(r.receiveMessages(1, Duration.ofMillis(300))), List.of(), "bodies");
            var waiting = e.keep(e.builder(1).receiver().queueName(q).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildAsyncClient());
            Throwable t = fails(null, () -> waiting.receiveMessages().next().timeout(Duration.ofMillis(500)).block());
            check(t.getCause() instanceof TimeoutException, "failed with " + t);
            waiting.close();
            e.send(q, message("x"));
            var m = e.one(r);
            equal(m.getBody() + " " + m.getDeliveryCount(), "x 0", "body and count");
            r.complete(m);
        });
        all.put("receive-prefetch", e -> {
            String q = filled(e, 25);
            var r = e.keep(e.builder(1).receiver().queueName(q).disableAutoComplete().prefetchCount(20).buildClient());
            List<String> seen = new ArrayList<>();
            for (int i = 0; i < 25; i++) {
                var m = e.one(r);
                seen.add(m.getBody().toString());
                r.complete(m);
            }
            equal(seen, bodies(25), "bodies");
            e.none(r);
        });
        all.put("receive-iterate", e -> {
            String q = filled(e, 5); // the asynchronous client
            var r = e.keep(e.builder(1).receiver().queueName(q).disableAutoComplete().buildAsyncClient());
            List<ServiceBusReceivedMessage> got = r.receiveMessages()
                .concatMap(m -> r.complete(m).thenReturn(m)).take(5).collectList().block(Env.SOON);
            equal(texts(got), bodies(5), "bodies");
        });
        all.put("receive-two", e -> {
            String q = filled(e, 30);
            var a = e.receiver(0, q);
            var b = e.receiver(1, q);
            var later = CompletableFuture.supplyAsync(() -> e.take(a, 10));
            List<ServiceBusReceivedMessage> got = new ArrayList<>(e.take(b, 20));
            got.addAll(later.get());
            equal(texts(got).stream().sorted().toList(), bodies(30).stream().sorted().toList(), "bodies");
        });
        all.put("receive-missing", e -> {
            var r = e.receiver(0, e.name("q"));
            fails(null, () -> texts(r.receiveMessages(1))); // the library tells no reason
            fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                () -> texts(e.receiver(0, e.name("q")).peekMessages(1)));
        });
        all.put("receive-counts", e -> {
            String q = filled(e, 1, o -> o.setLockDuration(Duration.ofSeconds(30)));
            var m = e.one(e.receiver(1, q));
            equal(m.getSequenceNumber() + " " + m.getEnqueuedSequenceNumber() + " " + m.getDeliveryCount(), "1 0 0",
                "numbers and count");
            equal(Api.state(m, "ACTIVE"), "ACTIVE", "state");
            check(m.getLockToken() != null && m.getEnqueuedTime() != null, "what the broker sets is missing");
            var lock = Duration.between(OffsetDateTime.now(), m.getLockedUntil());
            check(lock.toSeconds() > 5 && lock.toSeconds() <= 31, "locked for " + lock);
        });
    }

    private static void settling(Map<String, Runner.Scenario<Env>> all) {
        all.put("settle-once", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            var m = e.one(r);
            r.complete(m);
            fails(null, () -> r.complete(m));
            e.none(r);
        });
        all.put("settle-elsewhere", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            var m = e.one(r);
            r.close();
            var other = e.receiver(0, q);
            e.none(other); // locked still
            other.complete(m); // by its token, over the request node
        });
        all.put("abandon", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            var m = e.one(r);
            r.abandon(m);
            var again = e.one(r);
            equal(again.getDeliveryCount() + " " + again.getSequenceNumber(), "1 1", "count and number");
            check(!again.getLockToken().equals(m.getLockToken()), "the token of the first delivery");
            r.complete(again);
            e.none(r);
        });
        all.put("abandon-properties", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.abandon(e.one(r), new AbandonOptions().setPropertiesToModify(Map.of("why", "because", "times", 3)));
            var again = e.one(r);
            equal(again.getApplicationProperties().get("why"), "because", "why");
            equal(again.getApplicationProperties().get("times"), 3, "times");
        });
        all.put("abandon-delay", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.abandon(e.one(r), new AbandonOptions().setPropertiesToModify(Map.of("x-busbar-delay", 4_000L, "why", "later")));
            e.none(r);
            var again = e.one(r);
            equal(again.getDeliveryCount() + " " + again.getApplicationProperties(), "1 {why=later}", "count and properties");
        });
        all.put("max-delivery", e -> {
            String q = filled(e, 1, o -> o.setMaxDeliveryCount(3));
            var r = e.receiver(1, q);
            for (int i = 0; i < 3; i++) {
                var m = e.one(r);
                equal(m.getDeliveryCount(), (long) i, "count");
                r.abandon(m);
            }
            e.none(r);
            equal(e.one(e.deadLetters(0, q)).getDeadLetterReason(), "MaxDeliveryCountExceeded", "reason");
        });
    }

    private static void deferring(Map<String, Runner.Scenario<Env>> all) {
        all.put("defer", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.defer(e.one(r));
            e.none(r);
            var other = e.receiver(0, q);
            var got = other.receiveDeferredMessage(1);
            equal(got.getBody().toString(), "m0", "body");
            other.abandon(got); // deferred it stays
            e.none(other);
            var again = other.receiveDeferredMessage(1);
            equal(again.getDeliveryCount(), got.getDeliveryCount() + 1, "count");
            other.complete(again);
        });
        all.put("defer-properties", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.defer(e.one(r), new DeferOptions().setPropertiesToModify(Map.of("step", "two")));
            var m = r.receiveDeferredMessage(1);
            equal(m.getApplicationProperties().get("step"), "two", "step");
            r.deadLetter(m);
        });
        all.put("defer-missing", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            equal(texts(r.receiveDeferredMessageBatch(List.of(1000L))), List.of(), "received"); // so the library tells it
        });
    }

    private static void deadLetters(Map<String, Runner.Scenario<Env>> all) {
        all.put("dead-letter", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r), new DeadLetterOptions().setDeadLetterReason("reason-x")
                .setDeadLetterErrorDescription("description-y").setPropertiesToModify(Map.of("added", 7)));
            e.none(r);
            var d = e.deadLetters(0, q);
            var m = e.one(d);
            equal(m.getDeadLetterReason() + " " + m.getDeadLetterErrorDescription() + " " + m.getBody() + " "
                + m.getApplicationProperties().get("added") + " " + m.getSequenceNumber(),
                "reason-x description-y m0 7 1", "the dead letter");
            d.complete(m);
            e.none(d);
        });
        all.put("dead-letter-settle", e -> {
            String q = filled(e, 1);
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r));
            var d = e.deadLetters(0, q);
            d.abandon(e.one(d));
            var second = e.one(d);
            d.renewMessageLock(second);
            d.defer(second);
            e.none(d);
            d.complete(d.receiveDeferredMessage(second.getSequenceNumber()));
            equal(texts(d.peekMessages(1, 0)), List.of(), "left");
        });
        all.put("dead-letter-twice", e -> {
            String q = filled(e, 1, o -> o.setLockDuration(Duration.ofSeconds(5)));
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r));
            var d = e.deadLetters(0, q);
            var m = e.one(d);
            try {
                d.deadLetter(m); // the library takes a refusal of the same kind for success
            } catch (RuntimeException refused) {
                // and some versions tell it
            }
            var again = e.one(d);
            equal(again.getDeliveryCount(), m.getDeliveryCount(), "count in the dead-letter queue");
            d.complete(again);
        });
    }

    private static void locks(Map<String, Runner.Scenario<Env>> all) {
        all.put("lock-renew", e -> {
            String q = filled(e, 1, o -> o.setLockDuration(Duration.ofSeconds(10)));
            var r = e.receiver(1, q);
            var m = e.one(r);
            var old = m.getLockedUntil();
            for (int i = 0; i < 3; i++) {
                Thread.sleep(4000); // thrice that is more than the lock
                var now = r.renewMessageLock(m);
                check(now.isAfter(old), "locked-until did not move");
                old = now;
            }
            e.none(e.receiver(0, q));
            r.complete(m);
        });
        all.put("lock-lost", e -> {
            String q = filled(e, 1, o -> o.setLockDuration(Duration.ofSeconds(5)));
            var r = e.receiver(1, q);
            var m = e.one(r);
            var other = e.receiver(0, q);
            var again = e.one(other); // waits for the expiry
            equal(again.getDeliveryCount(), 1L, "count");
            fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> r.complete(m));
            fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> r.renewMessageLock(m));
            other.complete(again);
        });
    }

    private static void peeking(Map<String, Runner.Scenario<Env>> all) {
        all.put("peek", e -> {
            String q = filled(e, 5);
            var r = e.receiver(1, q);
            var locked = e.one(r);
            var other = e.receiver(0, q);
            List<String> seen = texts(other.peekMessages(3));
            seen.addAll(texts(other.peekMessages(3)));
            equal(seen, bodies(5), "peeked");
            for (var m : e.take(r, 4)) {
                equal(m.getDeliveryCount(), 0L, "count after peeking");
            }
            r.complete(locked);
        });
        all.put("peek-from", e -> {
            String q = filled(e, 4);
            var r = e.receiver(1, q);
            equal(texts(r.peekMessages(2, 2)), List.of("m1", "m2"), "peeked");
            equal(texts(r.peekMessages(1, 99)), List.of(), "peeked");
        });
        all.put("peek-states", e -> {
            String q = filled(e, 2);
            e.sender(0, q).scheduleMessage(message("wait"), OffsetDateTime.now().plusMinutes(1));
            var r = e.receiver(1, q);
            r.defer(e.one(r));
            List<String> seen = new ArrayList<>();
            for (var m : r.peekMessages(10, 0)) {
                seen.add(m.getBody() + " " + Api.state(m, "UNKNOWN"));
            }
            equal(seen, List.of("m0 DEFERRED", "m1 ACTIVE", "wait SCHEDULED"), "peeked");
        });
        all.put("peek-dead-letters", e -> {
            String q = filled(e, 2);
            var r = e.receiver(1, q);
            r.deadLetter(e.one(r), new DeadLetterOptions().setDeadLetterReason("why"));
            var d = e.deadLetters(0, q);
            equal(d.peekMessage().getDeadLetterReason(), "why", "reason");
            equal(texts(r.peekMessages(10, 0)), List.of("m1"), "peeked");
        });
        all.put("peek-empty", e -> equal(texts(e.receiver(1, e.queue()).peekMessages(5)), List.of(), "peeked"));
    }
}
