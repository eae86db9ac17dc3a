package fifo;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/**
 * Hands over two files as sequences of messages that travel interleaved through one queue. Each sequence is a session:
 * one consumer gets it whole and in order, whatever the other consumers do.
 */
public class Main {
    static final String QUEUE = "fifo-files";

    public static void main(String[] args) {
        send();
        var one = CompletableFuture.supplyAsync(Main::consume);
        var other = CompletableFuture.supplyAsync(Main::consume);
        Stream.of(one.join(), other.join()).sorted().forEach(System.out::println);
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Sends two sequences, one message of each in turn. The subject tells where a sequence begins and ends. */
    static void send() {
        var subjects = List.of("start", "content", "content", "end");
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            for (int i = 0; i < subjects.size(); i++) {
                for (var file : List.of("letter", "report")) {
                    var message = new ServiceBusMessage(file + ", part " + i);
                    sender.sendMessage(message.setSessionId(file).setSubject(subjects.get(i)));
                }
            }
        }
    }

    /** Takes a session that nobody holds, reads it from start to end and gives it back at once. */
    static String consume() {
        List<String> lines = new ArrayList<>();
        Long start = null;
        try (var sessions = client().sessionReceiver().queueName(QUEUE).buildClient();
             var session = sessions.acceptNextSession()) {
            for (;;) {
                for (ServiceBusReceivedMessage message : session.receiveMessages(1, Duration.ofMinutes(1))) {
                    if (message.getSubject().equals("start")) {
                        start = message.getSequenceNumber();
                    }
                    if (start == null) {
                        throw new IllegalStateException("a sequence without a start");
                    }
                    lines.add(String.format("%-7s %s, number %d behind the start",
                            message.getSubject(), message.getBody(), message.getSequenceNumber() - start));
                    session.complete(message);
                    if (message.getSubject().equals("end")) {
                        return String.join("\n", lines);
                    }
                }
            }
        }
    }
}
