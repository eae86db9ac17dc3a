module github.com/busbar-mq/busbar/test/conformance

go 1.26.0

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.23.0
	github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus v1.11.0
	github.com/Azure/go-amqp v1.7.0
	golang.org/x/net v0.61.0
)

require (
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.12.0 // indirect
	github.com/busbar-mq/busbar v0.0.0
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/busbar-mq/busbar => ../..
