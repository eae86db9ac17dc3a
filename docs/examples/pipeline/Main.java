package pipeline;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/**
 * Sends the same number of messages one at a time and ten at a time. The outcome of each send is looked at, in both
 * cases.
 */
public class Main {
    static final int COUNT = 200;

    public static void main(String[] args) {
        var client = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        try (var sender = client.sender().queueName("pipeline-readings").buildAsyncClient()) {
            sender.createMessageBatch().block(); // the link is there before the clock starts
            for (int atATime : new int[] {1, 10}) {
                long began = System.nanoTime();
                send(sender, atATime);
                long took = (System.nanoTime() - began) / 1_000_000;
                System.out.printf("%d messages accepted, %d at a time: %d ms%n", COUNT, atATime, took);
            }
        }
    }

    /**
     * Has so many messages under way at a time: the concurrency of flatMap is the semaphore. A send takes a place
     * before it begins and gives it back with its outcome. A send that fails ends all with its error.
     */
    static void send(ServiceBusSenderAsyncClient sender, int atATime) {
        Flux.fromStream(IntStream.range(0, COUNT).boxed())
                .flatMap(i -> sender.sendMessage(new ServiceBusMessage("reading " + i)), atATime)
                .then().block();
    }
}
