package outbox;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * Sends what a database has decided. An order and its message are written in one local transaction. A relay sends the
 * messages afterwards, as often as it must, and the queue drops what it has already.
 */
public class Main {
    static final String QUEUE = "outbox-orders"; // detects duplicates

    /** Stands for a row of a table of your database. The id of its message is that of the row. */
    static class Row {
        final String id = UUID.randomUUID().toString();
        final String body;
        boolean sent;

        Row(String body) {
            this.body = body;
        }
    }

    public static void main(String[] args) {
        List<Row> outbox = new ArrayList<>();
        for (int i = 1; i <= 3; i++) {
            outbox.add(new Row("order " + i));
        }
        System.out.println("3 orders and their messages are committed");
        relay(outbox, "order 2"); // it stops before it notes that the second message was sent
        relay(outbox, null);
        receive();
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Sends the rows that are not noted as sent, and notes each when its outcome is there. */
    static void relay(List<Row> outbox, String stopAt) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            for (var row : outbox) {
                if (row.sent) {
                    continue;
                }
                sender.sendMessage(new ServiceBusMessage(row.body).setMessageId(row.id));
                System.out.println(row.body + ": sent");
                if (row.body.equals(stopAt)) {
                    System.out.println("the relay stops before it notes that");
                    return;
                }
                row.sent = true;
            }
        }
    }

    /** Shows all that the queue has. */
    static void receive() {
        try (var receiver = client().receiver().queueName(QUEUE).buildClient()) {
            for (int received = 0; received < 3;) {
                for (var message : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                    System.out.println(message.getBody() + ": received");
                    receiver.complete(message);
                    received++;
                }
            }
            System.out.println(receiver.peekMessages(10).stream().count() + " messages are left");
        }
    }
}
