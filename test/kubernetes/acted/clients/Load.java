import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * A load of the official library, with the retries that it has by default. It tells on standard output what its clients
 * did, a line each, and obeys "stop" (senders end) and "end" (all ends) on standard input. foreign.go has the words.
 */
public final class Load {
    private static final String NAME = System.getenv("LOAD_NAME");
    private static final String PLAIN = System.getenv("LOAD_PLAIN");
    private static final String ORDERED = System.getenv("LOAD_ORDERED");
    private static final int WORKERS = Integer.parseInt(System.getenv("LOAD_WORKERS"));
    private static final long PAUSE_MS = Long.parseLong(System.getenv("LOAD_PAUSE_MS"));
    private static final Duration WAIT = Duration.ofSeconds(2);
    /** What a holder hears when the link of its session is gone, and the lock with it. */
    private static final Set<ServiceBusFailureReason> LOST = Set.of(ServiceBusFailureReason.SESSION_LOCK_LOST,
        ServiceBusFailureReason.SESSION_CANNOT_BE_LOCKED, ServiceBusFailureReason.SERVICE_COMMUNICATION_ERROR);

    private static volatile boolean stopped;
    private static volatile boolean ended;

    private static synchronized void say(Object... fields) {
        var line = new StringBuilder();
        for (Object f : fields) {
            line.append(line.length() > 0 ? "\t" : "").append(String.valueOf(f).replaceAll("\\s+", " "));
        }
        System.out.println(line);
    }

    private static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void produce(String queue, String series, boolean session) {
        ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient();
        for (int n = 1; !stopped; n++) {
            sleep(PAUSE_MS);
            String body = series + " " + n;
            var message = new ServiceBusMessage(body).setMessageId(body);
            if (session) {
                message.setSessionId(series);
            }
            try {
                sender.sendMessage(message);
                say("sent", queue, body);
            } catch (RuntimeException e) {
                say("unsent", queue, body);
                say("failed", "send", e);
            }
        }
    }

    private static int settle(ServiceBusReceiverClient receiver, String queue, Iterable<ServiceBusReceivedMessage> got) {
        int count = 0;
        for (var m : got) {
            count++;
            String body = m.getBody().toString();
            say("received", queue, body, m.getSequenceNumber());
            try {
                receiver.complete(m);
                say("done", queue, body);
            } catch (RuntimeException e) {
                if (queue.equals(ORDERED)) {
                    throw e;
                }
                say("failed", "complete", e);
            }
        }
        return count;
    }

    private static void consume() {
        var receiver = builder().receiver().queueName(PLAIN).buildClient();
        while (!ended) {
            try {
                settle(receiver, PLAIN, receiver.receiveMessages(10, WAIT));
            } catch (RuntimeException e) {
                say("failed", "receive", e);
                sleep(100);
            }
        }
    }

    /**
     * Accepts the next session; null if there is none. The library repeats no accept of a synchronous receiver. Where the
     * link ends before the broker has answered, it says so with an error that it calls transient.
     */
    private static ServiceBusReceiverClient accept(ServiceBusSessionReceiverClient sessions) {
        try {
            return sessions.acceptNextSession();
        } catch (ServiceBusException e) {
            if (e.getReason() != ServiceBusFailureReason.SERVICE_TIMEOUT) {
                tellOfAccept(e, e.getReason() == ServiceBusFailureReason.SERVICE_COMMUNICATION_ERROR || linkEnded(e, e.isTransient()));
            }
        } catch (AmqpException e) { // the library does not always wrap it
            tellOfAccept(e, linkEnded(e, e.isTransient()));
        } catch (RuntimeException e) {
            tellOfAccept(e, false);
        }
        return null;
    }

    /** Whether the link of an accept ended before the broker had answered. */
    private static boolean linkEnded(RuntimeException e, boolean isTransient) {
        return isTransient && String.valueOf(e.getMessage()).contains("completed without being Active");
    }

    private static void tellOfAccept(RuntimeException e, boolean withItsConnection) {
        if (withItsConnection) {
            say("note", "accepts that ended with their connections");
        } else {
            say("failed", "accept session", e);
        }
        sleep(100);
    }

    /** Accepts the next session over and over, takes what it has, and gives it back. */
    private static void hold() {
        var sessions = builder().sessionReceiver().queueName(ORDERED).buildClient();
        while (!ended) {
            var receiver = accept(sessions);
            if (receiver == null) {
                continue;
            }
            try (receiver) {
                for (int i = 0; i < 25 && settle(receiver, ORDERED, receiver.receiveMessages(1, WAIT)) > 0; i++) {
                }
            } catch (ServiceBusException e) {
                if (LOST.contains(e.getReason())) {
                    say("note", "sessions that ended with their links");
                } else {
                    say("failed", "hold a session", e);
                }
            } catch (RuntimeException e) {
                // The library says so of a receiver whose link has ended.
                if (String.valueOf(e.getMessage()).contains("upstream-completion")) {
                    say("note", "sessions that ended with their links");
                } else {
                    say("failed", "hold a session", e);
                }
                sleep(100);
            }
        }
    }

    private static Thread begin(Runnable work) {
        var t = new Thread(work);
        t.setDaemon(true);
        t.start();
        return t;
    }

    public static void main(String[] args) throws Exception {
        List<Thread> makers = new ArrayList<>();
        for (int i = 0; i < WORKERS; i++) {
            String series = NAME + "-series-" + i;
            String session = NAME + "-session-" + i;
            makers.add(begin(() -> produce(PLAIN, series, false)));
            makers.add(begin(() -> produce(ORDERED, session, true)));
            begin(Load::consume);
            begin(Load::hold);
        }
        say("note", "runs");
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null && !line.equals("end"); line = input.readLine()) {
            stopped = true;
            for (var t : makers) {
                t.join();
            }
            say("stopped");
        }
        ended = true;
        stopped = true;
        sleep(3000);
        System.out.flush();
        Runtime.getRuntime().halt(0); // an accept may wait for a minute
    }
}
