package twophase;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;

/**
 * Sends in two phases. Phase 1 stores a message within a transaction of the broker, where no worker sees it. Phase 2
 * commits the transaction or rolls it back, as the local transaction has decided. A process that stops before it
 * decides leaves nothing.
 */
public class Main {
    static final String QUEUE = "twophase-ready";

    public static void main(String[] args) {
        prepare("order 1", true);
        prepare("order 2", false);
        prepare("order 3", null);
        receive();
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Sends an order. Committed is what its local transaction has come to, and null if the process stops before. */
    static void prepare(String order, Boolean committed) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage(order), transaction);
            if (committed == null) {
                System.out.println(order + ": prepared, and the process stops before it decides");
            } else if (committed) {
                System.out.println(order + ": prepared, committed here");
                sender.commitTransaction(transaction);
                System.out.println(order + ": is ready");
            } else {
                System.out.println(order + ": prepared, rolled back here");
                sender.rollbackTransaction(transaction);
                System.out.println(order + ": is deleted");
            }
        }
    }

    static void receive() {
        try (var receiver = client().receiver().queueName(QUEUE).buildClient()) {
            var message = receiver.receiveMessages(1, Duration.ofMinutes(1)).iterator().next();
            System.out.println(message.getBody() + ": received");
            receiver.complete(message);
            System.out.println(receiver.peekMessages(10).stream().count() + " messages are left");
        }
    }
}
