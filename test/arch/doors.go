package arch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// doors lists, for each room of the broker, the rooms it may import; testRooms does so for tests and scripts. A room
// that is in neither may not exist. cmd/busbar itself holds all the keys. A change here is a change of the
// architecture: docs/ARCHITECTURE.md and docs/decisions say so in the same commit.
var doors = map[string][]string{
	"fsm":               {"fsm/rule", "fsm/stored"},
	"fsm/rule":          {},
	"fsm/stored":        {"fsm/rule"},
	"fsm/catalog":       {"fsm", "fsm/rule"},
	"partition":         {"cluster/tick", "fsm", "fsm/catalog", "fsm/stored", "partition/control", "partition/raftnet", "partition/replica", "partition/wire"},
	"partition/control": {"fsm", "fsm/catalog", "partition/replica"},
	"partition/replica": {"fsm", "fsm/catalog", "fsm/stored", "partition/raftnet"},
	"partition/raftnet": {"fsm", "partition/wire"},
	"partition/wire":    {"fsm"},
	"cluster":           {"cluster/tick", "fsm"},
	"cluster/tick":      {},
	"cluster/callnet":   {"fsm"},
	"cluster/simnet":    {"cluster", "fsm"},
	"storage":           {},
	"storage/faultfs":   {"storage"},
	"transport": {"cluster/tick", "fsm", "fsm/catalog", "fsm/rule", "fsm/stored", "transport/amqp", "transport/auth", "transport/refusal", "transport/rulemap",
		"transport/audit", "transport/sockets", "transport/waist"},
	"transport/audit":   {"fsm", "transport/auth", "transport/refusal"},
	"transport/amqp":    {},
	"transport/auth":    {},
	"transport/rest":    {"fsm", "fsm/catalog", "fsm/rule", "transport/audit", "transport/auth", "transport/refusal"},
	"transport/refusal": {},
	"transport/rulemap": {"fsm", "fsm/rule", "transport/amqp", "transport/refusal"},
	"transport/sockets": {},
	"transport/waist":   {"fsm"},

	"cmd/busbar/exit":     {},
	"cmd/busbar/process":  {"cluster/tick"},
	"cmd/busbar/notify":   {},
	"cmd/busbar/dial":     {"cmd/busbar/exit", "transport/auth"},
	"cmd/busbar/entities": {"cmd/busbar/dial", "cmd/busbar/exit"},
	"cmd/busbar/lines":    {"transport/amqp"},
	"cmd/busbar/backup":   {},
	"cmd/busbar/doctor":   {},
	"cmd/busbar/console":  {"transport/audit", "transport/auth", "transport/refusal"},
	"cmd/busbar/sink":     {},
	"cmd/busbar/tracing":  {"fsm/stored", "transport"},
	"cmd/busbar/manage":   {"cmd/busbar/dial", "cmd/busbar/entities", "cmd/busbar/exit", "fsm/rule", "transport/rest"},
	"cmd/busbar/client": {"cmd/busbar/backup", "cmd/busbar/dial", "cmd/busbar/doctor", "cmd/busbar/entities", "cmd/busbar/exit", "cmd/busbar/lines", "cmd/busbar/manage", "fsm", "partition", "storage",
		"transport/rest"},
	"cmd/busbar/bench": {"cmd/busbar/dial", "cmd/busbar/exit", "fsm", "transport", "transport/auth", "transport/refusal"},
}

// testDoors are further doors of a room's own tests: the fault-injecting file system and network.
var testDoors = map[string][]string{
	"cmd/busbar/client": {"transport/auth", "transport/refusal"},
	"cluster":           {"cluster/simnet"},
	"storage":           {"storage/faultfs"},
	"partition":         {"cluster/callnet", "storage/faultfs"},
}

// assembly is the package that puts the rooms together. It holds all the keys; the packages below it have doors.
const assembly = "cmd/busbar"

// worldDoors says which rooms may use a library whose words must stop at a door (law 4). A library
// that is not listed may be used where the purity rule allows it.
var worldDoors = map[string][]string{
	"github.com/hashicorp/raft":               {"partition", "storage", "cmd/busbar/bench", "test/simulation"},
	"github.com/hashicorp/raft-wal":           {"storage", "cmd/busbar/bench"},
	"github.com/hashicorp/raft-boltdb":        {"storage"},
	"go.etcd.io/bbolt":                        {"storage"},
	"github.com/hashicorp/memberlist":         {"cluster", "test/conformance/attack"},
	"github.com/minio/minio-go":               {"cmd/busbar/backup"},
	"filippo.io/age":                          {"cmd/busbar/backup"},
	"github.com/coreos/go-oidc":               {"cmd/busbar/console"},
	"golang.org/x/oauth2":                     {"cmd/busbar/console"},
	"github.com/johannesboyne/gofakes3":       {"test/backup"},
	"github.com/coder/websocket":              {"transport", "test/suites"},
	"go.opentelemetry.io":                     {"cmd/busbar/tracing"},
	"github.com/prometheus/client_golang":     {"transport/rest"},
	"github.com/prometheus/prometheus":        {"test/monitoring"},
	"github.com/spf13/cobra":                  {"cmd/busbar"},
	"go.yaml.in/yaml":                         {"cmd/busbar", "scripts/release", "test/schema"},
	"github.com/santhosh-tekuri/jsonschema":   {"test/schema"},
	"github.com/Azure/go-amqp":                {"cmd/busbar", "test/chaos", "test/conformance", "test/kubernetes/acted", "test/simulation"},
	"github.com/Azure/azure-sdk-for-go":       {"docs/examples", "test/chaos", "test/cluster", "test/conformance", "test/console", "test/kits/go", "test/kubernetes/acted", "test/suites"},
	"github.com/chromedp":                     {"test/console"},
	"github.com/tidwall/btree":                {"fsm", "storage"},
	"github.com/hashicorp/go-hclog":           {"partition", "storage", "cluster", "transport", "cmd/busbar", "test/simulation"},
	"github.com/google/uuid":                  {"storage", "cluster", "transport", "cmd/busbar"},
	"github.com/hashicorp/go-msgpack/v2":      {"partition"},
	"github.com/hashicorp/go-metrics":         {},
	"github.com/armon/go-metrics":             {},
	"github.com/hashicorp/go-immutable-radix": {},
	"github.com/anishathalye/porcupine":       {"test/check"},
	"gocloud.dev":                             {"test/suites"},
	"github.com/miekg/dns":                    {"test/kubernetes/acted"},
	"golang.org/x/net":                        {"test/conformance"},
	"golang.org/x/tools":                      {"scripts/lint"},
	"github.com/CycloneDX/cyclonedx-go":       {"scripts/release"},
	"github.com/google/go-containerregistry":  {"scripts/release"},
	"github.com/goreleaser/nfpm":              {"scripts/release"},
	"k8s.io":                                  {"test/kubernetes"},
	"sigs.k8s.io":                             {"test/kubernetes"},
}

// testWorld are libraries that a room's own tests may use besides: real clients and parts.
var testWorld = map[string][]string{
	"github.com/Azure/go-amqp":            {"transport"},
	"github.com/coder/websocket":          {"transport"},
	"github.com/hashicorp/raft":           {"storage", "partition", "cluster"},
	"github.com/hashicorp/raft-wal":       {"partition"},
	"github.com/hashicorp/raft-boltdb":    {"partition"},
	"github.com/hashicorp/go-hclog":       {"fsm"},
	"github.com/prometheus/client_golang": {"cmd/busbar/client"},
	"go.opentelemetry.io/proto":           {"cmd/busbar"},
}

// Doors reports imports that no door allows.
func Doors(t *Tree) []string {
	var sins []string
	for _, f := range t.Files {
		if f.Room == assembly {
			continue
		}
		if _, ok := doorsOf(f.Room); !ok {
			sins = append(sins, fmt.Sprintf("%s: room %q has no door: add it to test/arch/doors.go "+
				"and to docs/ARCHITECTURE.md, or to test/arch/testrooms.go, with a reason", f.Path, f.Room))
			continue
		}
		for _, spec := range f.AST.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil || allowed(f, name) {
				continue
			}
			sins = append(sins, fmt.Sprintf("%s: %s may not import %s", t.at(spec), f.Room, name))
		}
	}
	return sins
}

func allowed(f *File, name string) bool {
	if room, ours := strings.CutPrefix(name, Module+"/"); ours || name == Module {
		list, _ := doorsOf(f.Room)
		ok := slices.Contains(list, room)
		if f.Test {
			ok = ok || room == f.Room || slices.Contains(testDoors[f.Room], room)
		}
		return ok
	}
	lib, rooms, listed := library(name, worldDoors)
	if !listed || within(f, rooms) {
		return true
	}
	return f.Test && within(f, testWorld[lib])
}

// library finds the longest listed library that name belongs to.
func library(name string, table map[string][]string) (lib string, rooms []string, ok bool) {
	for l, r := range table {
		if (name == l || strings.HasPrefix(name, l+"/")) && len(l) > len(lib) {
			lib, rooms, ok = l, r, true
		}
	}
	return lib, rooms, ok
}

func within(f *File, rooms []string) bool {
	return slices.ContainsFunc(rooms, f.in)
}
