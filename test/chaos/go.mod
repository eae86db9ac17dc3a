module github.com/busbar-mq/busbar/test/chaos

go 1.26.0

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.23.0
	github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus v1.11.0
	github.com/Azure/go-amqp v1.7.0
	github.com/busbar-mq/busbar v0.0.0
	github.com/busbar-mq/busbar/test/check v0.0.0
)

require (
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.12.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/coder/websocket v1.8.15 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-hclog v1.6.3 // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.14 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/busbar-mq/busbar => ../..

replace github.com/busbar-mq/busbar/test/check => ../check

replace github.com/busbar-mq/busbar/test/conformance => ../conformance

replace github.com/hashicorp/go-metrics => github.com/hashicorp/go-metrics v0.6.1
