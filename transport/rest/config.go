package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// Bounds of what a client may cost.
const (
	// maxBodyBytes: the largest real body is a description with twelve rules, some 10 KiB.
	maxBodyBytes = 1 << 20
	// maxHeaderBytes: three tokens of at most auth.MaxTokenBytes travel in one request's headers.
	maxHeaderBytes = 64 << 10
	// maxPage is the service's own page, and the default of all clients that page.
	maxPage = 100
	// countsAtOnce: a page asks for the counters of this many entities at a time, so one client's
	// list does not fill the partitions' queues.
	countsAtOnce = 32
)

// The largest maximum message size that may be asked for, in KiB (RUL-25).
const maxMessageKilobytes = 100 << 10

// Tier is whose sizes and values the namespace shows (RUL-25).
type Tier string

// The tiers. A Premium namespace has messages of 1,024 kB unless an entity asks for more or less, up to
// the largest of the broker; a Standard one has messages of 256 kB, and no entity may ask for others.
const (
	Premium  Tier = "premium"
	Standard Tier = "standard"
)

// The limits of a Standard namespace.
const (
	standardMessageBytes  = 256 << 10
	standardSizeMegabytes = 5 << 10
)

// OfTier sets what follows from a tier. It sets the default of a message's size, and the largest quota of one entity,
// which LiftLimits leaves at that of Premium.
func (c *Config) OfTier(t Tier) {
	c.Tier = t
	if t == Standard {
		c.MaxMessageBytes = standardMessageBytes
		if !c.LiftLimits {
			c.MaxSizeMegabytes = standardSizeMegabytes
		}
	}
}

// sku is how the namespace calls itself.
func (t Tier) sku() string {
	if t == Standard {
		return "Standard"
	}
	return "Premium"
}

// Config is what an operator may set.
type Config struct {
	// Tier is whose sizes and values the namespace shows; see [Config.OfTier].
	Tier Tier
	// Namespace is the name that answers carry as their author; no client depends on it.
	Namespace string
	// CreatedAt is when the namespace was created; $namespaceinfo tells it.
	CreatedAt time.Time
	// MaxMessageBytes is a new queue's maximum message size if the client names none (RUL-9).
	MaxMessageBytes uint32
	// MaxLockDuration is the longest lock that a queue may ask for (S-157, RUL-8).
	MaxLockDuration time.Duration
	// MaxSizeMegabytes is the largest quota of one queue; without LiftLimits quotas are multiples of
	// 1024 (RUL-8).
	MaxSizeMegabytes uint32
	// LiftLimits drops limits that exist only because the original is a metered service (RUL-8). It allows quotas of
	// any size from 1 MB, and windows of duplicate detection from a second.
	LiftLimits bool
	// RequestTimeout bounds one request, waiting for the cluster included.
	RequestTimeout time.Duration
	// MaxRequests bounds the requests under way; more are answered 503 and retried by clients. It
	// bounds memory: each may hold a body and the parsed form of it.
	MaxRequests int
}

// Defaults returns the settings of an ordinary namespace.
func Defaults() Config {
	return Config{
		Namespace:        "busbar",
		Tier:             Premium,
		MaxMessageBytes:  1 << 20,
		MaxLockDuration:  5 * time.Minute,
		MaxSizeMegabytes: 80 << 10,
		RequestTimeout:   30 * time.Second,
		MaxRequests:      128,
	}
}

// Validate reports every setting that cannot work, in the same order each time.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Namespace != "", "namespace has no name")
	check(c.Tier == Premium || c.Tier == Standard, "tier is %q, want premium or standard", c.Tier)
	check(c.MaxMessageBytes > 0 && c.MaxMessageBytes <= maxMessageKilobytes<<10,
		"maximum message size %d, want 1 to %d bytes", c.MaxMessageBytes, maxMessageKilobytes<<10)
	check(c.MaxLockDuration >= minLock && c.MaxLockDuration <= longestLock,
		"longest lock %v, want %v to %v", c.MaxLockDuration, minLock, longestLock)
	check(c.MaxSizeMegabytes >= defaultSizeMegabytes,
		"largest queue of %d MB, want at least %d", c.MaxSizeMegabytes, defaultSizeMegabytes)
	check(c.RequestTimeout > 0, "request timeout %v, want more than 0", c.RequestTimeout)
	check(c.MaxRequests > 0, "%d requests at a time, want at least 1", c.MaxRequests)
	return errors.Join(errs...)
}

// Entities keeps the descriptions of entities: the catalog. Returned descriptors are shared and are
// not changed. Errors wrap those of package fsm, an [*fsm.RefusedError] or the context's.
type Entities interface {
	// Get finds an entity by name, without case; the error wraps fsm.ErrNoEntity if there is none.
	Get(ctx context.Context, name string) (*fsm.Descriptor, error)
	// Some finds entities by their names, without case: nil for each that is not there.
	Some(ctx context.Context, names []string) ([]*fsm.Descriptor, error)
	// List returns up to top entities of a kind after the first skip, by name without case.
	List(ctx context.Context, kind fsm.EntityKind, skip, top int) ([]*fsm.Descriptor, error)
	// Create adds an entity; id, version, shares and times are filled in by the catalog.
	Create(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error)
	// Update replaces the mutable properties of the entity with that name.
	Update(ctx context.Context, d fsm.Descriptor) (*fsm.Descriptor, error)
	// Delete removes an entity by name.
	Delete(ctx context.Context, name string) error
}

// Topics keeps what lives below topics: subscriptions and their rules. Errors as in Entities.
type Topics interface {
	// Subscriptions returns up to top subscriptions of a topic after the first skip, by name without
	// case; a negative top means all.
	Subscriptions(ctx context.Context, topic *fsm.Descriptor, skip, top int) ([]*fsm.Descriptor, error)
	// PutRule adds a rule to the subscription with that id, or replaces the one of that name.
	PutRule(ctx context.Context, id fsm.EntityID, r fsm.Rule, replace bool) (*fsm.Descriptor, error)
	// DropRule removes a rule.
	DropRule(ctx context.Context, id fsm.EntityID, name string) (*fsm.Descriptor, error)
}

// Cluster is what this API tells about the nodes behind it.
type Cluster interface {
	// Counts adds up the counters of the entity's shares. complete is false if a share did not
	// answer; the counters are then too low.
	Counts(ctx context.Context, d *fsm.Descriptor) (counts fsm.EntityCounts, complete bool, err error)
	// Cluster describes nodes, partitions and entities as this node sees them; it may be stale.
	Cluster(ctx context.Context) ClusterStatus
	// Ready returns why this node cannot serve now, nil if it can.
	Ready(ctx context.Context) error
	// Checks returns what the node looks at in itself: first what Ready is made of, then alarms.
	Checks(ctx context.Context) []Check
	// TransferLeader moves the leadership of a partition to a node that holds a replica of it.
	TransferLeader(ctx context.Context, partition fsm.PartitionID, to fsm.NodeID) error
	// Wish sets what an operator wants of a node: "drain", "undrain", "remove" or "forget". It returns as soon as the
	// wish is kept; Cluster tells how far it has come.
	Wish(ctx context.Context, verb string, node fsm.NodeID) error
	// Rebalance hands leaderships to the preferred leaders: to one node, or to all if node is "". It returns how many
	// were handed over, and a sentence for each that stays.
	Rebalance(ctx context.Context, node fsm.NodeID) (moved int, stay []string, err error)
	// Rehome begins to move the shares of a queue to other partitions: to one that is named, or to those with the fewest
	// shares. With dryRun it tells the moves alone. Cluster tells how far they are.
	Rehome(ctx context.Context, entity string, to fsm.PartitionID, dryRun bool) ([]ShareMove, error)
	// Upgrade tells the cluster version and the programs of the nodes; Finalize raises the version to what all of them know.
	Upgrade(ctx context.Context) UpgradeStatus
	Finalize(ctx context.Context) (UpgradeStatus, error)
}

// Deps are the other rooms, as this one needs them.
type Deps struct {
	Entities Entities
	Topics   Topics
	Cluster  Cluster
	Policies *auth.Policies
	Metrics  prometheus.Gatherer
	Refusals *refusal.Log
	Now      func() time.Time // wall clock
	// Accepted is told of each request whose token was accepted, before the cluster is asked anything. A nil one is not.
	Accepted func(*http.Request)
}

// New returns the API; it starts nothing.
func New(cfg Config, deps Deps, log hclog.Logger) (*API, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("management API: %w", err)
	}
	if deps.Entities == nil || deps.Topics == nil || deps.Cluster == nil || deps.Policies == nil ||
		deps.Metrics == nil || deps.Refusals == nil || deps.Now == nil || log == nil {
		return nil, errors.New("management API: a dependency is missing")
	}
	if cfg.CreatedAt.IsZero() {
		cfg.CreatedAt = deps.Now()
	}
	return &API{cfg: cfg, deps: deps, log: log, slots: make(chan struct{}, cfg.MaxRequests)}, nil
}

func (a *API) timeout(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
}

// Content types of answers, as the service writes them.
const (
	entryType = "application/atom+xml;type=entry;charset=utf-8"
	feedType  = "application/atom+xml;type=feed;charset=utf-8"
	errorType = "application/xml; charset=utf-8"
)

// API answers HTTP requests. It is safe for concurrent use and owns no goroutine.
type API struct {
	cfg   Config
	deps  Deps
	log   hclog.Logger
	slots chan struct{} // one token per management request under way
	quiet bool          // the node asks itself: its refusals are no client's
}

// answer is what a management request comes to.
type answer struct {
	status      int
	contentType string
	etag        string
	body        []byte
}

// request is one management request on its way: what every step of it needs.
type request struct {
	ctx     context.Context
	http    *http.Request
	where   route
	query   query
	host    string // as the client calls us, checked
	claim   auth.Claim
	updates bool // If-Match is there
}
