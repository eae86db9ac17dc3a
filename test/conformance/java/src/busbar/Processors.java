package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.in;
import static busbar.Env.message;
import static busbar.Env.texts;
import static busbar.Env.until;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

final class Processors {
    private Processors() {
    }

    /** A processor with what its handlers saw and what went wrong. */
    private static final class Running {
        final List<ServiceBusReceivedMessage> seen = new CopyOnWriteArrayList<>();
        final List<Throwable> errors = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient client;

        Consumer<ServiceBusReceivedMessageContext> handler(Consumer<ServiceBusReceivedMessageContext> f) {
            return c -> {
                seen.add(c.getMessage());
                f.accept(c);
            };
        }

        Running start(Env e, ServiceBusProcessorClient c) {
            client = e.keep(c);
            c.start();
            return this;
        }
    }

    private static Running plain(Env e, String q, int calls, boolean auto, Consumer<ServiceBusReceivedMessageContext> f) {
        Running p = new Running();
        var b = e.builder(1).processor().queueName(q).maxConcurrentCalls(calls)
            .processMessage(p.handler(f)).processError(x -> p.errors.add(x.getException()));
        return p.start(e, (auto ? b : b.disableAutoComplete()).buildProcessorClient());
    }

    private static Running sessions(Env e, String q, int sessions, Consumer<ServiceBusReceivedMessageContext> f) {
        Running p = new Running();
        return p.start(e, e.builder(1).sessionProcessor().queueName(q).maxConcurrentSessions(sessions)
            .processMessage(p.handler(f)).processError(x -> p.errors.add(x.getException())).buildProcessorClient());
    }

    private static String filled(Env e, int n, Duration lock) {
        String q = e.queue(o -> o.setLockDuration(lock));
        for (int i = 0; i < n; i++) {
            e.send(q, message("m" + i));
        }
        return q;
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException x) {
            Thread.currentThread().interrupt();
        }
    }

    private static final Duration MINUTE = Duration.ofMinutes(1);

    static void add(Map<String, Runner.Scenario<Env>> all) {
        settling(all);
        running(all);
        losing(all);
        inSessions(all);
    }

    private static void gone(Env e, String q) throws Exception {
        var r = e.receiver(0, q);
        until("the queue is empty", () -> texts(r.peekMessages(1, 0)).isEmpty());
    }

    private static void settling(Map<String, Runner.Scenario<Env>> all) {
        all.put("process-complete", e -> {
            String q = filled(e, 10, MINUTE);
            var p = plain(e, q, 1, true, c -> { });
            until("ten messages", () -> p.seen.size() == 10);
            gone(e, q);
            equal(p.errors, List.of(), "errors");
        });
        all.put("process-abandon", e -> {
            String q = filled(e, 1, MINUTE);
            var p = plain(e, q, 1, true, c -> {
                if (c.getMessage().getDeliveryCount() < 2) {
                    throw new IllegalStateException("again");
                }
            });
            until("three deliveries", () -> p.seen.size() == 3);
            gone(e, q);
            check(!p.errors.isEmpty(), "nothing was told of the handler's failure");
        });
        all.put("process-manual", e -> {
            String q = filled(e, 3, MINUTE);
            var p = plain(e, q, 1, false, c -> {
                if (c.getMessage().getBody().toString().equals("m1")) {
                    c.deadLetter(new DeadLetterOptions().setDeadLetterReason("by hand"));
                } else {
                    c.complete();
                }
            });
            until("three messages", () -> p.seen.size() == 3);
            equal(e.one(e.deadLetters(0, q)).getDeadLetterReason(), "by hand", "reason");
            equal(p.errors, List.of(), "errors");
        });
    }

    private static void running(Map<String, Runner.Scenario<Env>> all) {
        all.put("process-concurrent", e -> {
            String q = filled(e, 12, MINUTE);
            AtomicInteger now = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            var p = plain(e, q, 4, true, c -> {
                most.accumulateAndGet(now.incrementAndGet(), Math::max);
                sleep(300);
                now.decrementAndGet();
            });
            until("twelve messages", () -> p.seen.size() == 12 && now.get() == 0);
            check(most.get() > 1 && most.get() <= 4, most + " handlers at once");
        });
        all.put("process-renew", e -> {
            String q = filled(e, 1, Duration.ofSeconds(10));
            AtomicBoolean done = new AtomicBoolean();
            var p = plain(e, q, 1, true, c -> {
                sleep(15_000); // one and a half locks
                done.set(true);
            });
            until("the handler is done", 2 * Env.SOON_MS, done::get);
            gone(e, q);
            equal(p.seen.size(), 1, "deliveries");
        });
        all.put("process-stop", e -> {
            // The library says goodbye behind close: what comes until the broker hears of it is locked by nobody's
            // handler, for as long as a lock lasts.
            String q = filled(e, 2, Duration.ofSeconds(5));
            var p = plain(e, q, 1, true, c -> { });
            until("two messages", () -> p.seen.size() == 2);
            gone(e, q);
            p.client.close();
            e.send(q, message("after"));
            equal(e.one(e.receiver(0, q)).getBody().toString(), "after", "body");
            equal(p.seen.size(), 2, "deliveries");
        });
        all.put("process-error", e -> {
            var p = plain(e, e.name("q"), 1, true, c -> { });
            until("an error", () -> p.errors.stream().anyMatch(x -> x instanceof ServiceBusException s
                && s.getReason() == ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND));
        });
    }

    /**
     * Has a handler work until its message is delivered again; returns the milliseconds that took. The handler's
     * settlement fails then, which is told, and the processor goes on.
     */
    private static long lostAtWork(Env e, Duration renewed) throws Exception {
        String q = filled(e, 1, Duration.ofSeconds(5));
        Running p = new Running();
        AtomicLong took = new AtomicLong();
        p.start(e, e.builder(1).processor().queueName(q).maxConcurrentCalls(2).maxAutoLockRenewDuration(renewed)
            .disableAutoComplete() // which says nothing of a lock that was lost
            .processError(x -> p.errors.add(x.getException()))
            .processMessage(p.handler(c -> {
                if (c.getMessage().getDeliveryCount() == 0 && c.getMessage().getBody().toString().equals("m0")) {
                    long began = System.nanoTime();
                    waitFor(() -> p.seen.size() == 2);
                    took.set((System.nanoTime() - began) / 1_000_000);
                }
                c.complete();
            })).buildProcessorClient());
        until("the loss is told", () -> !p.errors.isEmpty());
        check(told(p.errors.get(0), ServiceBusFailureReason.MESSAGE_LOCK_LOST), "told of " + p.errors);
        e.send(q, message("next"));
        until("the next message", () -> p.seen.size() == 3);
        equal(texts(p.seen), List.of("m0", "m0", "next"), "bodies");
        equal(p.seen.get(1).getDeliveryCount(), 1L, "count");
        gone(e, q);
        return took.get();
    }

    /** Says whether a failure, or what a handler threw before it was told, has that reason. */
    private static boolean told(Throwable t, ServiceBusFailureReason reason) {
        for (; t != null; t = t.getCause()) {
            if (t instanceof ServiceBusException s && s.getReason() == reason) {
                return true;
            }
        }
        return false;
    }

    private static void waitFor(Callable<Boolean> check) {
        try {
            until("what the handler waits for", check);
        } catch (Exception x) {
            throw new IllegalStateException(x);
        }
    }

    private static void losing(Map<String, Runner.Scenario<Env>> all) {
        all.put("process-lost", e -> lostAtWork(e, Duration.ZERO));
        all.put("process-renew-limit", e -> {
            long took = lostAtWork(e, Duration.ofSeconds(8));
            check(took > 6_500, "a lock of 5 s that is renewed for 8 s was lost after " + took + " ms");
        });
        all.put("process-session-lost", e -> {
            String q = e.queue(o -> o.setSessionRequired(true).setLockDuration(Duration.ofSeconds(5)));
            e.send(q, in("S", "x"));
            Running p = new Running();
            p.start(e, e.builder(1).sessionProcessor().queueName(q).maxConcurrentSessions(2).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).processError(x -> p.errors.add(x.getException()))
                .processMessage(p.handler(c -> {
                    if (c.getMessage().getDeliveryCount() == 0) {
                        waitFor(() -> p.seen.size() == 2);
                    }
                    c.complete();
                })).buildProcessorClient());
            until("the loss is told", () -> !p.errors.isEmpty());
            // The broker ended the link with the session, and the library tells of the link.
            check(p.errors.get(0) instanceof ServiceBusException, "told of " + p.errors);
            gone(e, q);
            equal(p.seen.get(1).getDeliveryCount(), 1L, "count");
        });
    }

    private static void inSessions(Map<String, Runner.Scenario<Env>> all) {
        all.put("process-session", e -> {
            String q = e.sessionQueue();
            for (int i = 0; i < 10; i++) {
                e.send(q, in("S", "m" + i));
            }
            var p = sessions(e, q, 1, c -> { });
            until("ten messages", () -> p.seen.size() == 10);
            for (int i = 0; i < 10; i++) {
                equal(p.seen.get(i).getBody().toString(), "m" + i, "in order");
            }
        });
        all.put("process-session-renew", e -> {
            String q = e.queue(o -> o.setSessionRequired(true).setLockDuration(Duration.ofSeconds(10)));
            e.send(q, in("S", "x"));
            AtomicBoolean done = new AtomicBoolean();
            var p = sessions(e, q, 1, c -> {
                sleep(15_000); // one and a half locks
                done.set(true);
            });
            until("the handler is done", 2 * Env.SOON_MS, done::get);
            gone(e, q);
            equal(p.seen.size(), 1, "deliveries");
        });
        all.put("process-sessions", e -> {
            String q = e.sessionQueue();
            for (int i = 0; i < 3; i++) {
                e.send(q, in("A", "A" + i), in("B", "B" + i), in("C", "C" + i));
            }
            var p = sessions(e, q, 3, c -> { });
            until("nine messages", () -> p.seen.size() == 9);
            for (String s : List.of("A", "B", "C")) {
                equal(texts(p.seen.stream().filter(m -> m.getSessionId().equals(s)).toList()),
                    List.of(s + 0, s + 1, s + 2), "in order");
            }
        });
    }
}
