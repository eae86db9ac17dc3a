package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/busbar-mq/busbar/cmd/busbar/sink"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/rest"
)

// The key of every development node, the one of the official emulator. It opens nothing but nodes
// started with --dev.
const (
	devKeyName = "RootManageSharedAccessKey"
	devKey     = "SAS_KEY_VALUE"
)

// Config is everything that can be set about a node. A flag wins over an environment variable
// (BUSBAR_ and the flag's name in capitals, - as _), that over the file, that over the default.
type Config struct {
	DataDir  string `yaml:"data-dir"`
	NodeName string `yaml:"node-id"`
	// Zone is where the node stands, as its operator calls that: the replicas of a partition avoid one zone.
	Zone    string `yaml:"zone"`
	unnamed bool   // nobody chose the name: it is that of the host, and several nodes on one host have it
	Dev     bool   `yaml:"dev"`
	// PortsFile is where the node writes the ports that it listens on.
	PortsFile string `yaml:"ports-file"`
	// StopWithStdin is for programs that start a node and may be killed.
	StopWithStdin bool `yaml:"stop-with-stdin"`
	// Ephemeral keeps everything in a directory that is removed at the end.
	Ephemeral bool   `yaml:"ephemeral"`
	DevCADir  string `yaml:"dev-ca-dir"`

	AMQPListen   list   `yaml:"amqp-listen"`
	TLSListen    list   `yaml:"tls-listen"`
	OpsListen    string `yaml:"ops-listen"`
	OpsTLS       bool   `yaml:"ops-tls"`
	PeerListen   string `yaml:"peer-listen"`
	GossipListen string `yaml:"gossip-listen"`
	Advertise    string `yaml:"advertise"`

	// AllowedHosts are names by which browsers may call the node, besides its own.
	AllowedHosts list `yaml:"allowed-hosts"`

	BootstrapExpect   int  `yaml:"bootstrap-expect"`
	Join              list `yaml:"join"`
	Partitions        int  `yaml:"partitions"`
	partitionsSet     bool // somebody said how many
	ReplicationFactor int  `yaml:"replication-factor"`
	// MoveRate is how many bytes per second the node sends to new replicas at most, 0 for no bound.
	MoveRate int `yaml:"move-bytes-per-second"`
	// FinalizeUpgrades has the cluster version rise without an operator.
	FinalizeUpgrades bool `yaml:"finalize-upgrades"`

	TLSCert            string `yaml:"tls-cert"`
	TLSKey             string `yaml:"tls-key"`
	TLSCA              string `yaml:"tls-ca"`
	RequireNodeURI     bool   `yaml:"require-node-uri"`
	AllowPlaintextPeer bool   `yaml:"allow-plaintext-peers"`
	GossipKey          secret `yaml:"gossip-key"` // base64 of 32 bytes
	// GossipKeys and GossipKeysFile are a ring of such keys, in the place of one: the first encrypts, all are accepted.
	GossipKeys     secrets `yaml:"gossip-keys"`
	GossipKeysFile string  `yaml:"gossip-keys-file"`

	LogLevel  string `yaml:"log-level"`
	LogFormat string `yaml:"log-format"`
	LogStore  string `yaml:"log-store"`
	Pprof     bool   `yaml:"pprof"`
	// AuditLog is where the audit log goes, "" for nowhere: a file, "-" for standard output, or syslog (package sink).
	AuditLog string `yaml:"audit-log"`
	// Console serves pages for a browser at the operations port.
	Console bool `yaml:"console"`
	// QuietRuntime lets the runtime's monitor thread sleep longer (process/quiet.go).
	QuietRuntime bool `yaml:"quiet-runtime"`

	Entities string `yaml:"entities"`

	RootKey          secret   `yaml:"root-key"`
	RootKeySecondary secret   `yaml:"root-key-secondary"` // valid beside it, so that keys can be rotated
	Policies         []policy `yaml:"policies"`

	// Namespace is the name of the namespace, for the management API and for AMQP clients.
	Namespace string `yaml:"namespace"`
	// Tier is whose sizes and values the namespace shows: premium or standard (RUL-25).
	Tier string `yaml:"tier"`
	// LiftLimits and MaxLockDuration move limits that the original has as a metered service (RUL-8).
	LiftLimits      bool          `yaml:"lift-limits"`
	MaxLockDuration time.Duration `yaml:"max-lock-duration"`

	// Limits are those that clients meet as a quota (S-229).
	Limits limits `yaml:"limits"`
	// limitLines has the line of each limit that the file sets; file is its name.
	limitLines map[string]int
	file       string
	// source reads the configuration again; nil for one that a test has put together.
	source *source

	// ClockSkew is how long after its expiry, and before its beginning, a token still counts.
	ClockSkew time.Duration `yaml:"clock-skew"`
	Issuers   []issuer      `yaml:"issuers"`
}

// source is where a configuration came from.
type source struct {
	file   string
	given  map[string][]string
	getenv func(string) (string, bool)
}

func (s *source) load() (Config, error) { return load(s.file, s.given, s.getenv) }

// policy is a shared access policy of the namespace.
type policy struct {
	Name      string `yaml:"name"`
	Primary   secret `yaml:"primary-key"`
	Secondary secret `yaml:"secondary-key"`
	Rights    list   `yaml:"rights"`
}

// defaults are the settings of an ordinary node; with --dev those of one node on loopback.
func defaults(dev bool) Config {
	c := Config{
		TLSListen: nil, OpsListen: "127.0.0.1:5300",
		PeerListen: ":5301", GossipListen: ":5302",
		BootstrapExpect: 3, Partitions: defaultPartitions, ReplicationFactor: 3,
		MoveRate: int(partition.Defaults().MoveBytesPerSecond),
		LogLevel: logAuto, LogFormat: "auto", LogStore: "wal",
		QuietRuntime: true, ClockSkew: auth.DefaultExpiryTolerance,
		Namespace: "busbar", Tier: string(rest.Premium), MaxLockDuration: rest.Defaults().MaxLockDuration,
		Limits: defaultLimits(),
	}
	if dev {
		c.AMQPListen, c.TLSListen = list{"127.0.0.1:5672"}, list{"127.0.0.1:5671"}
		c.PeerListen, c.GossipListen = "127.0.0.1:0", "127.0.0.1:0"
		c.Advertise = "127.0.0.1"
		c.BootstrapExpect, c.FinalizeUpgrades, c.Console = 1, true, true
	}
	return c
}

// settings is the table of everything that is not only in the file. Keys are no flags: a command line
// is visible to every user of the machine.
func settings() []setting {
	return []setting{
		text("data-dir", "directory of everything the node keeps", func(c *Config) *string { return &c.DataDir }),
		text("node-id", "name of the node, for people (default: host name)", func(c *Config) *string { return &c.NodeName }),
		text("zone", "where the node stands, such as a rack, a room or an availability zone: the replicas of a partition avoid one zone", func(c *Config) *string { return &c.Zone }),
		truth("dev", "development: loopback, the well-known key, a CA under the data directory", func(c *Config) *bool { return &c.Dev }),
		truth("ephemeral", "keep everything in a new directory for temporary files, and remove it at the end: for tests, on one node", func(c *Config) *bool { return &c.Ephemeral }),
		text("ports-file", "file that the node writes its ports to, as JSON (default: DATA-DIR/ports.json)", func(c *Config) *string { return &c.PortsFile }),
		truth("stop-with-stdin", "stop when standard input ends, as it does when the program that started the node is killed", func(c *Config) *bool { return &c.StopWithStdin }),
		text("dev-ca-dir", "directory of the development CA, to share it between nodes (default: DATA-DIR/tls)", func(c *Config) *string { return &c.DevCADir }),
		texts("amqp-listen", "address for plain AMQP, HTTP and WebSocket; may be repeated; port 0 is any", func(c *Config) *list { return &c.AMQPListen }),
		texts("tls-listen", "address for the same over TLS; may be repeated", func(c *Config) *list { return &c.TLSListen }),
		text("ops-listen", "address for health, metrics and operations", func(c *Config) *string { return &c.OpsListen }),
		truth("ops-tls", "TLS on ops-listen, with the certificate of tls-listen", func(c *Config) *bool { return &c.OpsTLS }),
		text("peer-listen", "address for the other nodes", func(c *Config) *string { return &c.PeerListen }),
		text("gossip-listen", "address for gossip, TCP and UDP", func(c *Config) *string { return &c.GossipListen }),
		text("advertise", "host that other nodes reach this one at", func(c *Config) *string { return &c.Advertise }),
		truth("console", "web console at / of ops-listen, for browsers (default with --dev)", func(c *Config) *bool { return &c.Console }),
		texts("allowed-hosts", "names by which browsers may call the node besides its own; may be repeated", func(c *Config) *list { return &c.AllowedHosts }),
		number("bootstrap-expect", "number of nodes that found the cluster", func(c *Config) *int { return &c.BootstrapExpect }),
		texts("join", "gossip addresses of other nodes; may be repeated", func(c *Config) *list { return &c.Join }),
		number("partitions", "number of data partitions; a cluster gets more when all nodes ask for them, and never fewer", func(c *Config) *int { return &c.Partitions }),
		number("replication-factor", "replicas of each partition", func(c *Config) *int { return &c.ReplicationFactor }),
		number("move-bytes-per-second", "bytes per second that the node sends to new replicas at most; 0 for no bound", func(c *Config) *int { return &c.MoveRate }),
		truth("finalize-upgrades", "finalize an upgrade as soon as every node runs it; nobody can go back from then on (default with --dev)", func(c *Config) *bool { return &c.FinalizeUpgrades }),
		text("tls-cert", "certificate chain, PEM", func(c *Config) *string { return &c.TLSCert }),
		text("tls-key", "private key, PEM", func(c *Config) *string { return &c.TLSKey }),
		text("tls-ca", "CA that certificates of other nodes must come from, PEM; turns on TLS between nodes", func(c *Config) *string { return &c.TLSCA }),
		truth("require-node-uri", "refuse certificates of other nodes that do not name their node as URI busbar://node/ID", func(c *Config) *bool { return &c.RequireNodeURI }),
		truth("allow-plaintext-peers", "let nodes talk without TLS off loopback", func(c *Config) *bool { return &c.AllowPlaintextPeer }),
		text("log-level", "trace, debug, info, warn, error, or auto: info, and warn with --dev on a terminal", func(c *Config) *string { return &c.LogLevel }),
		text("log-format", "text, json, or auto: text on a terminal", func(c *Config) *string { return &c.LogFormat }),
		text("audit-log", "where the audit log goes: a FILE, - for standard output, or syslog:, syslog:udp://HOST:PORT, syslog:tcp://HOST:PORT (default: none is kept)", func(c *Config) *string { return &c.AuditLog }),
		text("log-store", "Raft log: wal or boltdb", func(c *Config) *string { return &c.LogStore }),
		truth("quiet-runtime", "save CPU time by letting the monitor thread of the Go runtime sleep longer; needs CAP_SYS_NICE on Linux and does nothing elsewhere", func(c *Config) *bool { return &c.QuietRuntime }),
		text("entities", "file of entities to create if they are missing: the emulator's Config.json, or YAML", func(c *Config) *string { return &c.Entities }),
		text("tier", "premium or standard: whose sizes of messages and entities the namespace shows", func(c *Config) *string { return &c.Tier }),
		truth("lift-limits", "quotas of any size from 1 MB, duplicate detection from 1 s: limits of a metered service", func(c *Config) *bool { return &c.LiftLimits }),
		truth("pprof", "profiles at /debug/pprof/ of the operations port, of locks and waits as well", func(c *Config) *bool { return &c.Pprof }),
	}
}

// environmentOnly lists what may come from the environment but not from the command line.
func environmentOnly() []setting {
	return []setting{
		text("root-key", "", func(c *Config) *string { return (*string)(&c.RootKey) }),
		text("root-key-secondary", "", func(c *Config) *string { return (*string)(&c.RootKeySecondary) }),
		text("gossip-key", "", func(c *Config) *string { return (*string)(&c.GossipKey) }),
		text("gossip-keys-file", "", func(c *Config) *string { return &c.GossipKeysFile }),
	}
}

func environmentName(name string) string {
	return "BUSBAR_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// load puts the configuration together. given holds the flags of the command line. Every problem is
// reported, not only the first.
func load(file string, given map[string][]string, getenv func(string) (string, bool)) (Config, error) {
	from := &source{file, given, getenv}
	if file == "" {
		file, _ = getenv("BUSBAR_CONFIG")
	}
	dev, err := wantsDev(file, given, getenv)
	if err != nil {
		return Config{}, err
	}
	c := defaults(dev)
	if file != "" {
		if err := c.readFile(file); err != nil {
			return Config{}, err
		}
	}
	var errs []error
	for _, s := range append(settings(), environmentOnly()...) {
		name := environmentName(s.name)
		if v, ok := getenv(name); ok {
			if err := s.set(&c, []string{v}); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
		if _, inEnvironment := getenv(name); s.name == "partitions" && (inEnvironment || len(given[s.name]) > 0) {
			c.partitionsSet = true
		}
		if v := given[s.name]; len(v) > 0 {
			if err := s.set(&c, v); err != nil {
				errs = append(errs, fmt.Errorf("flag --%s: %w", s.name, err))
			}
		}
	}
	c.source = from
	if err := c.resolve(); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func (c *Config) readFile(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	document := struct {
		Schema string  `yaml:"$schema"` // for editors
		Config *Config `yaml:",inline"`
	}{Config: c}
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration %s: %w", file, forPeople(err))
	}
	var lines struct {
		Limits     map[string]yaml.Node `yaml:"limits"`
		Partitions yaml.Node            `yaml:"partitions"`
	}
	if err := yaml.Unmarshal(b, &lines); err != nil {
		return fmt.Errorf("configuration %s: %w", file, err)
	}
	c.file, c.limitLines, c.partitionsSet = file, map[string]int{}, !lines.Partitions.IsZero()
	for name, node := range lines.Limits {
		c.limitLines[name] = node.Line
	}
	return nil
}

// limitAt returns where the file sets a limit, to stand before what is wrong with it, and whether it does.
func (c *Config) limitAt(name string) (string, bool) {
	line, ok := c.limitLines[name]
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%s:%d: ", c.file, line), true
}

// resolve fills what follows from the rest and reports every setting that cannot work.
func (c *Config) resolve() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Ephemeral {
		c.validateEphemeral(bad)
	}
	c.fill()
	if c.DataDir == "" {
		bad("data-dir is not set: pass --data-dir DIR, the directory of everything the node keeps")
	}
	if c.RootKeySecondary != "" { // fill has taken it with its first one
		bad("root-key-secondary needs root-key: it is the second key of the same policy")
	}
	if len(c.Policies) == 0 {
		bad("no access key: set BUSBAR_ROOT_KEY, or policies in the configuration file (only --dev has a default)")
	}
	c.validateAddresses(bad)
	c.validateAccess(bad)
	c.Limits.validate(c.limitAt, bad)
	c.Limits.fit(c.Partitions, c.limitAt, bad)
	for _, n := range c.spans() {
		n.validate(n.name, bad)
	}
	if c.MoveRate != 0 && c.MoveRate < partition.LeastMoveRate {
		bad("move-bytes-per-second is %d, want at least %d, or 0 for no bound", c.MoveRate, partition.LeastMoveRate)
	}
	if !validZone(c.Zone) {
		bad("zone is %q, want at most %d letters, digits and signs of ASCII without spaces", c.Zone, maxZone)
	}
	c.ReplicationFactor = min(c.ReplicationFactor, max(1, c.BootstrapExpect))
	if _, err := c.gossipRing(); err != nil {
		bad("%w", err)
	}
	if err := sink.Check(c.AuditLog); err != nil {
		bad("audit-log is %q: %w", c.AuditLog, err)
	}
	for _, w := range c.words() {
		if !slices.Contains(w.want, w.is) {
			bad("%s is %q, want %s", w.name, w.is, oneOf(w.want))
		}
	}
	return errors.Join(errs...)
}

// wantedPartitions is how many data partitions the operator asked for, 0 if nobody said.
func (c *Config) wantedPartitions() int { return wantedPartitions(c.partitionsSet, c.Partitions) }

// fill sets what follows from the other settings.
func (c *Config) fill() {
	if c.Ephemeral {
		c.DataDir = ephemeralDir()
	}
	if abs, err := filepath.Abs(c.DataDir); err == nil && c.DataDir != "" {
		c.DataDir = abs
	}
	if c.NodeName == "" {
		c.NodeName, _ = os.Hostname()
		c.unnamed = true
	}
	if c.PortsFile == "" {
		c.PortsFile = filepath.Join(c.DataDir, "ports.json")
	}
	if c.DevCADir == "" {
		c.DevCADir = filepath.Join(c.DataDir, "tls")
	}
	if c.Dev && c.RootKey == "" && len(c.Policies) == 0 {
		c.RootKey = devKey
	}
	if c.RootKey != "" {
		c.Policies = append(c.Policies, policy{Name: devKeyName, Primary: c.RootKey, Secondary: c.RootKeySecondary,
			Rights: list{"Send", "Listen", "Manage"}})
		c.RootKey, c.RootKeySecondary = "", ""
	}
	if c.AMQPListen == nil {
		// Plain text for other machines is asked for where there is TLS.
		c.AMQPListen = list{":5672"}
		if len(c.TLSListen) > 0 {
			c.AMQPListen = list{"127.0.0.1:5672"}
		}
	}
}

// frontConfig is that of the AMQP front end.
func (c *Config) frontConfig(life fsm.Incarnation) transport.Config {
	f := transport.Defaults()
	f.Incarnation, f.Namespace = life, c.Namespace
	f.MaxTransactionMessages = c.Limits.TransactionMessages
	f.MaxConnections, f.MaxConnectionsPerHost = c.Limits.Connections, c.Limits.ConnectionsPerHost
	f.MaxHandshakes, f.MaxHandshakesPerHost = c.Limits.Unauthenticated, c.Limits.UnauthenticatedPerHost
	f.MaxLinks, f.MaxOperations = c.Limits.Links, c.Limits.Operations
	f.KeyRate = c.Limits.keyRate()
	f.MaxClientBytes, f.MaxTransactionBytes = c.Limits.ClientBytes, c.Limits.TransactionBytes
	return f
}

// restConfig is that of the management API.
func (c *Config) restConfig() rest.Config {
	r := rest.Defaults()
	r.Namespace, r.LiftLimits, r.MaxLockDuration = c.Namespace, c.LiftLimits, c.MaxLockDuration
	r.OfTier(rest.Tier(c.Tier))
	return r
}

// validateAccess looks at who may do what, and at the file of entities.
func (c *Config) validateAccess(bad func(string, ...any)) {
	if c.ClockSkew < 0 || c.ClockSkew > time.Hour {
		bad("clock-skew is %v, want 0 to 1h", c.ClockSkew)
	}
	limits := c.restConfig()
	if err := limits.Validate(); err != nil {
		bad("%w", err)
	}
	if len(c.Policies) > 0 {
		if _, err := newPolicies(*c); err != nil {
			bad("policies: %w", err)
		}
	}
	if c.Entities != "" {
		if err := checkEntities(c.Entities, limits); err != nil {
			bad("%w", err)
		}
	}
	if _, err := resolveIssuers(c.Issuers); err != nil {
		bad("issuers: %w", err)
	}
	if err := c.checkSignIns(); err != nil {
		bad("issuers: %w", err)
	}
}
