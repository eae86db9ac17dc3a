package tickets;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/**
 * Sells three tickets to the first three who asked. Two clerks work side by side and finish in any order; the sequence
 * numbers of the requests decide.
 */
public class Main {
    static final String QUEUE = "tickets-requests";
    static final int TICKETS = 3;
    /** They ask in this order; ann is impatient. */
    static final List<String> BUYERS = List.of("ann", "bob", "ann", "cid", "dan", "eve");

    public static void main(String[] args) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            BUYERS.forEach(buyer -> sender.sendMessage(new ServiceBusMessage(buyer)));
        }
        var one = CompletableFuture.supplyAsync(() -> collect(BUYERS.size() / 2));
        var other = CompletableFuture.supplyAsync(() -> collect(BUYERS.size() / 2));
        var inOrder = Stream.concat(one.join().stream(), other.join().stream())
                .sorted(Comparator.comparingLong(Note::number))
                .map(Note::buyer).distinct().toList(); // each buyer once, by the first request
        for (int i = 0; i < inOrder.size(); i++) {
            System.out.println(inOrder.get(i) + ": " + (i < TICKETS ? "ticket " + (i + 1) : "sold out"));
        }
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    record Note(long number, String buyer) {
    }

    /** Is a clerk who notes so many requests: who asks, and with which number. */
    static List<Note> collect(int requests) {
        List<Note> noted = new ArrayList<>();
        try (var receiver = client().receiver().queueName(QUEUE).buildClient()) {
            while (noted.size() < requests) {
                for (var message : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                    noted.add(new Note(message.getSequenceNumber(), message.getBody().toString()));
                    receiver.complete(message);
                }
            }
        }
        return noted;
    }
}
