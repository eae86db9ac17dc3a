package checkpoint;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.stream.Stream;

/**
 * Counts money. The running total is the state of the session. The SDK for Java sets the state of a session outside of
 * any transaction, so the state says up to which message it counts. A message that comes again is counted once.
 */
public class Main {
    static final String QUEUE = "checkpoint-payments";
    static final String ACCOUNT = "account-1";

    public static void main(String[] args) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            sender.sendMessages(Stream.of("10", "20", "30")
                    .map(amount -> new ServiceBusMessage(amount).setSessionId(ACCOUNT)).toList());
        }
        count(20);
        count(0);
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** A total, and the number of the last message in it. */
    record Checkpoint(long total, long upTo) {
        static Checkpoint of(ServiceBusReceiverClient session) {
            byte[] kept = session.getSessionState();
            if (kept == null || kept.length == 0) {
                return new Checkpoint(0, 0);
            }
            var numbers = ByteBuffer.wrap(kept);
            return new Checkpoint(numbers.getLong(), numbers.getLong());
        }

        byte[] bytes() {
            return ByteBuffer.allocate(2 * Long.BYTES).putLong(total).putLong(upTo).array();
        }
    }

    static void count(int stopAt) {
        try (var sessions = client().sessionReceiver().queueName(QUEUE).buildClient();
             var session = sessions.acceptSession(ACCOUNT)) {
            var checkpoint = Checkpoint.of(session);
            for (;;) {
                for (var message : session.receiveMessages(1, Duration.ofMinutes(1))) {
                    int amount = Integer.parseInt(message.getBody().toString());
                    if (message.getSequenceNumber() <= checkpoint.upTo()) {
                        System.out.printf("%d came again, the total is %d with it%n", amount, checkpoint.total());
                    } else {
                        checkpoint = new Checkpoint(checkpoint.total() + amount, message.getSequenceNumber());
                        System.out.printf("%d counted, the total is %d%n", amount, checkpoint.total());
                        session.setSessionState(checkpoint.bytes()); // only then may the message be completed
                    }
                    if (amount == stopAt) {
                        System.out.println("the worker stops before it completes the message");
                        return;
                    }
                    session.complete(message);
                    if (amount == 30) {
                        session.setSessionState(null); // the last: clear the state, or it stays for ever
                        return;
                    }
                }
            }
        }
    }
}
