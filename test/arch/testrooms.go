package arch

import "strings"

// testRooms lists, for each package below test and scripts, the packages of ours that it may import. The tests of such
// a package have the same doors. The table is as much a law as doors: a test that speaks with the broker from outside
// must not reach into it. The model must know nothing but the words of the state machine.
var testRooms = map[string][]string{
	"test/arch":  {},
	"test/model": {"fsm", "fsm/rule"},
	"test/check": {"fsm", "test/ledger", "test/model", "transport"}, // a mutant stands in front of a transport.Broker
	"test/simulation": {"cluster", "cluster/callnet", "cluster/simnet", "fsm", "fsm/catalog", "partition", "partition/control", "partition/replica",
		"storage", "storage/faultfs", "test/check", "test/ledger", "transport", "transport/amqp", "transport/auth", "transport/refusal"},
	"test/simulation/scenario": {"fsm", "fsm/catalog", "fsm/stored", "partition", "test/check", "test/simulation",
		"transport", "transport/amqp", "transport/auth", "transport/refusal", "transport/rest"},
	"test/console":               {"test/cluster"},
	"test/cluster":               {},                    // it knows of the broker what operators know
	"test/backup":                {"cmd/busbar/backup"}, // its store like S3, with a server that the root does not depend on
	"test/chaos":                 {"test/check", "test/cluster", "test/ledger", "test/namespaces", "transport/amqp", "transport/auth"},
	"test/conformance":           {"test/cluster", "test/conformance/raw", "transport/amqp", "transport/auth"},
	"test/conformance/attack":    {"fsm", "test/cluster", "test/conformance/raw", "transport/amqp", "transport/auth"},
	"test/conformance/examples":  {"test/cluster", "test/conformance/languages"},
	"test/conformance/failover":  {"test/cluster", "test/ledger"},
	"test/conformance/go":        {}, // it is built with every version of the SDK, and with nothing of ours
	"test/conformance/languages": {"test/cluster"},
	"test/conformance/raw":       {"test/cluster", "transport/amqp"},
	"test/conformance/smoke":     {"test/cluster"},
	"test/kits/go/busbartest":    {}, // applications use it
	"test/kits/go/example":       {"test/kits/go/busbartest"},
	"test/kubernetes":            {"test/kubernetes/manifests"},
	"test/kubernetes/acted":      {"test/cluster", "test/conformance/languages", "test/kubernetes/manifests", "test/ledger", "test/namespaces"},
	"test/kubernetes/manifests":  {},
	"test/ledger":                {},
	"test/monitoring":            {}, // it sees what a collector sees
	"test/namespaces":            {},
	"test/schema":                {"cmd/busbar/dial", "cmd/busbar/entities", "cmd/busbar/exit", "test/cluster", "transport/rest"}, // the judges of files
	"test/suites":                {"test/cluster", "test/conformance/languages"},

	"scripts/coverage": {},
	"scripts/links":    {},
	"scripts/lint":     {},
	"scripts/mermaid":  {},
	"scripts/prose":    {},
	"scripts/release":  {}, // it builds the program, and imports nothing of it
	"scripts/snippets": {},
}

// examples are programs that a reader can copy out: none imports anything of ours.
const examples = "docs/examples/"

// doorsOf returns the doors of a room, and whether it may exist.
func doorsOf(room string) (list []string, ok bool) {
	if strings.HasPrefix(room, examples) {
		return nil, true
	}
	if list, ok = doors[room]; !ok {
		list, ok = testRooms[room]
	}
	return list, ok
}
