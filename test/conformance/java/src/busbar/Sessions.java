package busbar;

import static busbar.Env.check;
import static busbar.Env.complete;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.in;
import static busbar.Env.message;
import static busbar.Env.texts;

import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

final class Sessions {
    private Sessions() {
    }

    private static String filled(Env e, Duration lock, String... bodies) {
        String q = e.queue(o -> o.setSessionRequired(true).setLockDuration(lock));
        for (String b : bodies) {
            e.send(q, in("S", b));
        }
        return q;
    }

    private static final Duration MINUTE = Duration.ofMinutes(1);

    /** Accepts the next session with little patience. */
    private static ServiceBusReceiverClient impatient(Env e, String q) {
        return e.keep(e.builder(e.dataString(2), Duration.ofSeconds(3), 0).sessionReceiver().queueName(q)
            .disableAutoComplete().buildClient()).acceptNextSession();
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        accepting(all);
        working(all);
        locks(all);
        rest(all);
    }

    private static void accepting(Map<String, Runner.Scenario<Env>> all) {
        all.put("session-named", e -> {
            String q = e.sessionQueue();
            for (int i = 0; i < 4; i++) {
                e.send(q, in("A", "A" + i), in("B", "B" + i));
            }
            for (String session : List.of("B", "A")) {
                var r = e.accept(1, q, session);
                var got = e.take(r, 4);
                equal(Api.session(r, got.get(0)), session, "session");
                equal(texts(got), List.of(session + 0, session + 1, session + 2, session + 3), "bodies");
                complete(r, got);
                r.close();
            }
            var r = e.accept(2, q, "C"); // a session without message or state can be held
            e.send(q, in("C", "c"));
            r.complete(e.one(r));
        });
        all.put("session-next", e -> {
            String q = e.sessionQueue();
            e.send(q, in("one", "1"), in("two", "2"));
            List<String> held = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                var r = e.accept(i, q, null);
                var m = e.one(r);
                equal(m.getSessionId(), Api.session(r, m), "session");
                r.complete(m);
                held.add(m.getSessionId());
            }
            equal(held.stream().sorted().toList(), List.of("one", "two"), "held");
        });
        all.put("session-none", e -> {
            String q = e.sessionQueue();
            fails(null, () -> impatient(e, q));
        });
        all.put("session-waits", e -> {
            String q = e.sessionQueue();
            var waiting = CompletableFuture.supplyAsync(() -> e.accept(1, q, null));
            Thread.sleep(500);
            e.send(q, in("late", "x"));
            var r = waiting.get();
            var m = e.one(r);
            equal(Api.session(r, m), "late", "session");
            r.complete(m);
        });
        all.put("session-held", e -> {
            String q = filled(e, MINUTE, "x");
            var r = e.accept(0, q, "S");
            var refused = fails(null, () -> e.accept(1, q, "S"));
            check(refused.getMessage().contains("cannot be accepted"), "refused with " + refused);
            fails(null, () -> impatient(e, q));
            r.complete(e.one(r));
            r.close();
            e.accept(1, q, "S");
        });
        all.put("session-close", e -> {
            String q = filled(e, MINUTE, "1", "2", "3");
            var r = e.accept(1, q, "S");
            var first = e.take(r, 3);
            r.complete(first.get(0));
            r.close();
            var next = e.accept(2, q, "S");
            var got = e.take(next, 2);
            equal(texts(got), List.of("2", "3"), "bodies");
            got.forEach(m -> equal(m.getDeliveryCount(), 0L, "count"));
            complete(next, got);
        });
    }

    private static void working(Map<String, Runner.Scenario<Env>> all) {
        all.put("session-state", e -> {
            String q = e.sessionQueue();
            var r = e.accept(0, q, "S");
            check(r.getSessionState() == null, "a fresh session has state");
            r.setSessionState("one".getBytes());
            r.close();
            var next = e.accept(1, q, "S");
            equal(new String(next.getSessionState()), "one", "state");
            next.setSessionState("two".getBytes());
            equal(new String(next.getSessionState()), "two", "state");
            next.setSessionState(null);
            check(next.getSessionState() == null, "the state was not cleared");
        });
        all.put("session-abandon", e -> {
            // The receiver of an older version has the fourth message before the second is abandoned.
            String q = Api.FETCHES_AHEAD ? filled(e, MINUTE, "1", "2", "3") : filled(e, MINUTE, "1", "2", "3", "4");
            var r = e.accept(1, q, "S");
            var got = e.take(r, 3);
            r.abandon(got.get(1));
            var again = e.one(r);
            equal(again.getBody() + " " + again.getDeliveryCount(), "2 1", "abandoned");
            if (Api.FETCHES_AHEAD) {
                e.send(q, in("S", "4"));
            }
            var last = e.one(r);
            equal(last.getBody().toString(), "4", "last");
            complete(r, List.of(got.get(2), got.get(0), last, again));
            e.none(r);
        });
        all.put("session-defer", e -> {
            String q = filled(e, MINUTE, "a", "b");
            var r = e.accept(1, q, "S");
            var m = e.one(r);
            r.defer(m);
            var b = e.one(r);
            equal(b.getBody().toString(), "b", "body");
            r.complete(b);
            r.close();
            var next = e.accept(0, q, "S");
            e.none(next);
            var got = next.receiveDeferredMessage(m.getSequenceNumber());
            equal(got.getBody().toString(), "a", "body");
            next.complete(got);
        });
        all.put("session-dead-letter", e -> {
            String q = filled(e, MINUTE, "bad", "good");
            var r = e.accept(1, q, "S");
            r.deadLetter(e.one(r), new DeadLetterOptions().setDeadLetterReason("why"));
            var m = e.one(r);
            equal(m.getBody().toString(), "good", "body");
            r.complete(m);
            var g = e.one(e.deadLetters(0, q));
            equal(g.getBody() + " " + g.getSessionId() + " " + g.getDeadLetterReason(), "bad S why", "the dead letter");
        });
        all.put("session-peek", e -> {
            String q = e.sessionQueue();
            e.send(q, in("A", "a1"), in("B", "b1"), in("A", "a2"));
            equal(texts(e.accept(1, q, "A").peekMessages(10)), List.of("a1", "a2"), "peeked");
        });
    }

    private static void locks(Map<String, Runner.Scenario<Env>> all) {
        all.put("session-renew", e -> {
            String q = filled(e, Duration.ofSeconds(10), "x");
            var r = e.accept(1, q, "S");
            var m = e.one(r);
            OffsetDateTime old = null;
            for (int i = 0; i < 3; i++) {
                Thread.sleep(4000); // thrice that is more than the lock
                var now = r.renewSessionLock();
                check(old == null || now.isAfter(old), "locked-until did not move");
                old = now;
            }
            r.complete(m); // the message's lock is the session's
        });
        all.put("session-lost", e -> {
            String q = filled(e, Duration.ofSeconds(5), "1", "2");
            var r = e.accept(1, q, "S");
            var m = e.one(r);
            Thread.sleep(6500); // the lock's five seconds, and a margin for its expiry to be noticed
            var next = e.accept(0, q, "S");
            fails(null, () -> r.complete(m));
            fails(null, () -> r.renewSessionLock());
            List<String> got = new ArrayList<>();
            e.take(next, 2).forEach(x -> got.add(x.getBody() + " " + x.getDeliveryCount()));
            // The receiver of an older version has fetched the second message too.
            equal(got, List.of("1 1", Api.FETCHES_AHEAD ? "2 1" : "2 0"), "the next holder got");
        });
    }

    private static void rest(Map<String, Runner.Scenario<Env>> all) {
        all.put("session-schedule", e -> {
            String q = e.sessionQueue();
            e.sender(0, q).scheduleMessage(in("S", "later"), OffsetDateTime.now().plusSeconds(2));
            var r = e.accept(1, q, null);
            var m = e.one(r);
            equal(Api.session(r, m) + " " + m.getBody(), "S later", "arrived");
        });
        all.put("session-receive-delete", e -> {
            String q = filled(e, MINUTE, "a", "b");
            var r = e.keep(e.builder(1).sessionReceiver().queueName(q)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()).acceptSession("S");
            equal(texts(e.take(r, 2)), List.of("a", "b"), "bodies");
            r.close();
            e.none(e.accept(0, q, "S"));
        });
        all.put("session-guard", e -> {
            String q = e.sessionQueue();
            String plain = e.queue();
            fails(null, () -> texts(e.receiver(1, q).receiveMessages(1, Env.SOON)));
            fails(null, () -> e.sender(1, q).sendMessage(message("no session")));
            fails(null, () -> e.accept(1, plain, "S"));
        });
        all.put("session-list", e -> {
            throw new Runner.Skip("the library has no list of sessions");
        });
        all.put("session-share", e -> {
            throw new Runner.Skip("the library has no sessions without exclusion");
        });
    }
}
