package deadline;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.time.OffsetDateTime;

/** Judges essays by the time at which the broker took them, long after that time. */
public class Main {
    static final String QUEUE = "deadline-essays";

    public static void main(String[] args) throws InterruptedException {
        var client = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        try (var sender = client.sender().queueName(QUEUE).buildClient();
             var receiver = client.receiver().queueName(QUEUE).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("ann"));
            var deadline = OffsetDateTime.now().plusSeconds(1);
            Thread.sleep(2000);
            sender.sendMessage(new ServiceBusMessage("bob"));
            System.out.println("the deadline is over, the essays are read now");
            for (int read = 0; read < 2;) {
                for (var essay : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                    boolean late = essay.getEnqueuedTime().isAfter(deadline);
                    System.out.println(essay.getBody() + ": " + (late ? "too late" : "in time"));
                    receiver.complete(essay);
                    read++;
                }
            }
        }
    }
}
