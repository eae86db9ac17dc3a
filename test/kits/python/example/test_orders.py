from azure.servicebus import ServiceBusClient, ServiceBusMessage


def test_an_order_is_received(busbar):
    queue = busbar.queue("orders", LockDuration="PT5S", MaxDeliveryCount=1)

    with ServiceBusClient.from_connection_string(busbar.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("an order"))
        with client.get_queue_receiver(queue) as receiver:
            [message] = receiver.receive_messages(max_wait_time=20)
            assert str(message) == "an order"
            receiver.complete_message(message)
