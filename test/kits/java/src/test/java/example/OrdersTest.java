package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import dev.busbar.test.Broker;
import dev.busbar.test.BusbarExtension;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(BusbarExtension.class)
class OrdersTest {
    @Test
    void anOrderIsReceived(Broker broker) {
        var queue = broker.queue("orders", Map.of("LockDuration", "PT5S", "MaxDeliveryCount", 1));
        var client = new ServiceBusClientBuilder().connectionString(broker.connectionString());
        try (var sender = client.sender().queueName(queue).buildClient();
                var receiver = client.receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("an order"));
            var message = receiver.receiveMessages(1, Duration.ofSeconds(20)).iterator().next();
            assertEquals("an order", message.getBody().toString());
            receiver.complete(message);
        }
    }
}
