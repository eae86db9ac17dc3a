package busbar;

import static busbar.Env.check;
import static busbar.Env.in;

import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

/** Order in sessions under the library's default loops, while messages arrive. */
final class Ordering {
    private static final int SESSIONS = 10;
    private static final int AHEAD = 30;
    private static final int EACH =
        Integer.parseInt(System.getenv().getOrDefault("BUSBAR_MESSAGES", "1000")) / SESSIONS;

    private final Env e;
    private final String queue;
    // The runner's own limit would tell nothing of the state.
    private final long end = System.nanoTime() + (Main.LIMIT_SECONDS - 5) * 1_000_000_000L;
    private final AtomicInteger[] next = new AtomicInteger[SESSIONS];
    private final List<String> wrong = Collections.synchronizedList(new ArrayList<>());

    private Ordering(Env e) {
        this.e = e;
        queue = e.sessionQueue();
        for (int i = 0; i < SESSIONS; i++) {
            next[i] = new AtomicInteger(1);
        }
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("session-order", e -> {
            var o = new Ordering(e);
            List<Callable<Void>> work = new ArrayList<>();
            for (int i = 0; i < SESSIONS; i++) {
                int session = i;
                work.add(() -> o.produce(session));
                work.add(() -> o.consume(session));
            }
            o.run(work);
        });
        all.put("process-session-order", e -> {
            var o = new Ordering(e);
            List<Callable<Void>> work = new ArrayList<>();
            for (int i = 0; i < SESSIONS; i++) {
                int session = i;
                work.add(() -> o.produce(session));
            }
            var p = e.keep(e.builder(1).sessionProcessor().queueName(o.queue).maxConcurrentSessions(SESSIONS)
                .processMessage(c -> o.seen(c.getMessage())).processError(x -> { }).buildProcessorClient());
            p.start();
            o.run(work);
            while (!o.done()) {
                check(System.nanoTime() < o.end, "handed out " + o);
                check(o.wrong.isEmpty(), "handed out " + o);
                Thread.sleep(50);
            }
            check(o.wrong.isEmpty(), "handed out " + o);
        });
    }

    private void run(List<Callable<Void>> work) throws Exception {
        var pool = Executors.newFixedThreadPool(work.size());
        try {
            var done = new ExecutorCompletionService<Void>(pool);
            work.forEach(done::submit);
            for (int i = 0; i < work.size(); i++) {
                done.take().get(); // the first that fails ends the others
            }
            check(wrong.isEmpty(), wrong.toString());
        } finally {
            pool.shutdownNow();
        }
    }

    private boolean done() {
        for (var n : next) {
            if (n.get() <= EACH) {
                return false;
            }
        }
        return true;
    }

    @Override
    public String toString() {
        return List.of(next) + " of " + EACH + ", in the wrong order " + wrong;
    }

    /**
     * Sends the messages of a session one after the other; a failed send is repeated. It stays some messages ahead
     * only, so that messages arrive while receivers wait, while they settle, and between the two.
     */
    private Void produce(int session) throws Exception {
        var sender = e.sender(session + 1, queue);
        for (int n = 1; n <= EACH && wrong.isEmpty(); n++) {
            for (;;) {
                try {
                    sender.sendMessage(in("" + session, "" + n));
                    break;
                } catch (ServiceBusException | AmqpException | IllegalStateException x) {
                    check(System.nanoTime() < end, "session " + session + ": message " + n + " is not sent: " + x);
                }
            }
            int ahead = ThreadLocalRandom.current().nextInt(AHEAD);
            while (n - next[session].get() > ahead && wrong.isEmpty() && System.nanoTime() < end) {
                Thread.sleep(1);
            }
        }
        return null;
    }

    /** Opens the session at the next node whenever a link is lost. */
    private Void consume(int session) throws Exception {
        for (int at = session; next[session].get() <= EACH && wrong.isEmpty(); at++) {
            try (var client = e.builder(at).sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
                var r = client.acceptSession("" + session)) {
                drain(session, r);
            } catch (RuntimeException x) { // also "The receiver client is terminated. Re-create the client"
                check(System.nanoTime() < end,
                    "session " + session + ": message " + next[session] + " never came: " + x);
                Thread.sleep(50);
            }
        }
        return null;
    }

    private void drain(int session, ServiceBusReceiverClient r) {
        while (next[session].get() <= EACH && wrong.isEmpty()) {
            check(System.nanoTime() < end, "handed out " + this);
            for (var m : r.receiveMessages(10, Duration.ofSeconds(20))) {
                seen(m);
                r.complete(m);
            }
        }
    }

    private void seen(ServiceBusReceivedMessage m) {
        int n = Integer.parseInt(m.getBody().toString());
        AtomicInteger want = next[Integer.parseInt(m.getSessionId())];
        if (n > want.get()) {
            wrong.add("session " + m.getSessionId() + ": " + n + " was handed out before " + want);
        }
        want.compareAndSet(n, n + 1);
    }
}
