module github.com/busbar-mq/busbar/test/check

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/busbar-mq/busbar v0.0.0
)

require github.com/tidwall/btree v1.8.2 // indirect

replace github.com/busbar-mq/busbar => ../..

replace github.com/hashicorp/go-metrics => github.com/hashicorp/go-metrics v0.6.1
