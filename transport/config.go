package transport

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Config is everything that can be set about the front end. Zero is not a default: start from
// [Defaults]. No limit can be switched off.
type Config struct {
	// Incarnation names this life of the process in request ids; it must differ at every start.
	Incarnation fsm.Incarnation
	// Namespace is the name of the broker in its container id and in trackers, and the host that audiences without a
	// scheme may name. It stands in the text about a missing entity if the client gave no host name.
	Namespace string

	// Guard wraps what serves HTTP and WebSocket; it may refuse requests. It may be nil.
	Guard func(http.Handler) http.Handler

	// MaxConnections bounds the sockets of clients of one node, whatever they speak; one more is closed at once,
	// or takes the place of an idle HTTP connection. An AMQP connection costs about 20 KiB, so the default bounds
	// idle clients to 200 MiB.
	MaxConnections int
	// MaxConnectionsPerHost is the same per remote address.
	MaxConnectionsPerHost int
	// MaxHandshakes bounds the sockets of those that have not authenticated yet, so strangers cannot
	// take the places of clients.
	MaxHandshakes int
	// MaxHandshakesPerHost is the same per remote address.
	MaxHandshakesPerHost int
	// MaxOperations bounds the sockets of the operations port, which have places of their own in [Server.Sockets].
	MaxOperations int
	// KeyRate bounds what one key sends; without a rate there is no limit.
	KeyRate KeyRate
	// HandshakeTimeout is the time from accept to an answered open: TLS, sniffing, SASL and open.
	HandshakeTimeout time.Duration
	// AuthTimeout is the time from open to the first accepted token; over HTTP it counts from the first byte.
	AuthTimeout time.Duration
	// MaxChannels bounds the AMQP sessions of a connection. Session processors open one per
	// message session (Q11), so it may not be below 255.
	MaxChannels uint32
	// MaxLinks bounds the links of a connection over all its channels.
	MaxLinks int
	// MaxTokens bounds the audiences that one connection may authenticate. The token that was sent first makes room for one more.
	MaxTokens int
	// MaxFrameBytes is the largest frame taken and announced.
	MaxFrameBytes uint32
	// IdleTimeout is announced; a connection silent for twice as long is lost (G20).
	IdleTimeout time.Duration
	// WriteTimeout is how long the socket may take no byte before the connection is lost.
	WriteTimeout time.Duration
	// CloseTimeout is how long a closing connection waits for the peer's close.
	CloseTimeout time.Duration

	// ProposeTimeout ends a proposal that found no leader; the client is told to try again. The
	// official clients give up after 60 s.
	ProposeTimeout time.Duration
	// LockWait is how long one lock request stays parked before it is asked anew.
	LockWait time.Duration
	// AcceptWait is how long a session accept without com.microsoft:timeout waits (S-40). It is below the 60 s
	// after which older clients give up, so that no session goes to a link that is left.
	AcceptWait time.Duration
	// MaxAcceptWait bounds com.microsoft:timeout.
	MaxAcceptWait time.Duration
	// DisconnectGrace is how long the locks of a lost connection stay settleable (RUL-2).
	DisconnectGrace time.Duration
	// WatchInterval is how often entities with open links are looked up in the local catalog, to
	// detach the links of deleted and disabled ones.
	WatchInterval time.Duration

	// MaxTransactionMessages bounds what one transaction sends (S-239).
	MaxTransactionMessages int
	// MaxTransactionBytes bounds what the open transactions of a node hold, encoded.
	MaxTransactionBytes int
	// MaxCredit is the most credit a sending client is granted (A21).
	MaxCredit uint32
	// MaxLinkBytes bounds the bytes of one sending link that wait for the partition (A21).
	MaxLinkBytes int
	// MaxConnBytes bounds the bytes of all sending links of a connection that wait for partitions.
	// Above it the socket is paused; below it settlements and renewals always pass.
	MaxConnBytes int
	// MaxClientBytes bounds what the node holds for all its clients: deliveries and requests under way, answers and
	// messages that wait for them, transactions, links. Above it the connections that hold most are refused more.
	MaxClientBytes int
	// MaxBatchBytes bounds the bytes of a batch of messages to an entity that takes larger messages; it is
	// announced as com.microsoft:max-message-batch-size (RUL-32). The number of messages has no limit.
	MaxBatchBytes uint32
	// LeaveOver is asked for how long the ends of connections are spread when this node sends its clients to other nodes. Nil
	// and 0 end all at once, as where nobody else serves.
	LeaveOver func() time.Duration
	// OnLarge is called with the bytes of memory that were taken for a message or request of more than 8 MiB that is
	// still arriving; nil for nobody.
	OnLarge func(bytes int)
	// OnConfirmed is called with the time from the last byte of a client's delivery until it is stored. OnDelivered gets
	// the time from the enqueueing of a message until its first delivery, OnSettled that from a delivery until its
	// settlement is applied. Each is nil for nobody, and must not block.
	OnConfirmed, OnDelivered, OnSettled func(time.Duration)
	// OnSpan is called with each span of a message that is traced (decision 0096). It is nil for nobody, and must not block.
	OnSpan func(Span)
	// MaxEnqueue bounds the bytes of one Enqueue that packs several deliveries.
	MaxEnqueueBytes int
	// MaxLock bounds the messages of one Lock, MaxLockBytes their bytes (A21).
	MaxLock      uint32
	MaxLockBytes uint32
	// MaxUnsettled bounds the unsettled deliveries of one receiving link; no more is locked for a
	// client that does not settle.
	MaxUnsettled int
	// MaxSettle bounds the items of one Settle command.
	MaxSettle int
	// MaxWriteBytes is how much output may wait for the socket before deliveries pause; twice as
	// much pauses reading too, so a client that does not read cannot make the broker grow.
	MaxWriteBytes int
	// MaxRequests bounds the requests of one request link that run at a time, MaxConnRequests those of all
	// links of a connection. More wait their turn: the links of a connection take turns, and each connection
	// has as many places as any other.
	MaxRequests     int
	MaxConnRequests int
	// MaxReplies bounds the unsettled replies of a channel that are remembered for a client that never settles them.
	MaxReplies int
	// MaxHTTPRequests bounds the requests that send and receive over HTTP; each receive holds one
	// while it waits. One key has as many as are free besides, so half of them if it is alone. More are
	// answered 503.
	MaxHTTPRequests int
}

// Smallest values that the protocol or official clients can live with.
const (
	minChannels   = 255             // Q11
	minIdle       = 5 * time.Second // G20: .NET refuses less
	minFrameBytes = 512             // AMQP 1.0 §2.3.1
	maxFrameBytes = 16 << 20
)

// maxTxnMessages bounds the messages that a transaction sends, whatever is configured (S-239).
const maxTxnMessages = 100

// Defaults returns the settings of an ordinary node.
func Defaults() Config {
	return Config{
		Namespace:              "busbar",
		MaxConnections:         10_000,
		MaxConnectionsPerHost:  5_000,
		MaxHandshakes:          1_024,
		MaxHandshakesPerHost:   512,
		MaxOperations:          128,
		HandshakeTimeout:       10 * time.Second,
		AuthTimeout:            15 * time.Second,
		MaxChannels:            5_000, // what the original announces, 4999 as the highest number
		MaxLinks:               10_000,
		MaxTokens:              10_000, // one for each link
		MaxFrameBytes:          64 << 10,
		IdleTimeout:            2 * time.Minute,
		WriteTimeout:           30 * time.Second,
		CloseTimeout:           2 * time.Second,
		ProposeTimeout:         55 * time.Second,
		LockWait:               time.Minute,
		AcceptWait:             55 * time.Second,
		MaxAcceptWait:          time.Hour,
		DisconnectGrace:        5 * time.Second,
		WatchInterval:          time.Second,
		MaxTransactionMessages: maxTxnMessages,
		MaxTransactionBytes:    256 << 20,
		MaxCredit:              1_000,
		MaxLinkBytes:           8 << 20,
		MaxConnBytes:           32 << 20,
		MaxClientBytes:         1 << 30,
		MaxBatchBytes:          1 << 20,
		MaxEnqueueBytes:        256 << 10,
		MaxLock:                256,
		MaxLockBytes:           1 << 20,
		MaxUnsettled:           10_000,
		MaxSettle:              1_024,
		MaxWriteBytes:          1 << 20,
		MaxRequests:            16,
		MaxConnRequests:        256,
		MaxReplies:             1_000,
		MaxHTTPRequests:        2_000,
	}
}

// batchBytes is how many bytes the messages of a batch to an entity may have together.
func (c *Config) batchBytes(d *fsm.Descriptor) int {
	return int(min(d.MaxMessageBytes, c.MaxBatchBytes))
}

// Validate reports every setting that cannot work, in the same order each time.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Incarnation != 0, "transport: Incarnation is not set")
	check(c.MaxChannels >= minChannels && c.MaxChannels <= 65536,
		"transport: MaxChannels is %d, want %d to 65536", c.MaxChannels, minChannels)
	check(c.MaxFrameBytes >= minFrameBytes && c.MaxFrameBytes <= maxFrameBytes,
		"transport: MaxFrameBytes is %d, want %d to %d", c.MaxFrameBytes, minFrameBytes, maxFrameBytes)
	check(c.MaxTransactionMessages <= maxTxnMessages,
		"transport: MaxTransactionMessages is %d, want at most %d", c.MaxTransactionMessages, maxTxnMessages)
	check(c.IdleTimeout >= minIdle, "transport: IdleTimeout is %v, want at least %v", c.IdleTimeout, minIdle)
	check(c.KeyRate.Messages >= 0 && (c.KeyRate.Messages == 0 || c.KeyRate.MessageBurst > 0) && c.KeyRate.Bytes >= 0 &&
		(c.KeyRate.Bytes == 0 || c.KeyRate.ByteBurst > 0), "transport: KeyRate is %+v, want rates of at least 0 with bursts", c.KeyRate)
	check(c.DisconnectGrace >= 0, "transport: DisconnectGrace is negative")
	for _, f := range []struct {
		name string
		is   time.Duration
	}{
		{"HandshakeTimeout", c.HandshakeTimeout}, {"AuthTimeout", c.AuthTimeout}, {"WriteTimeout", c.WriteTimeout},
		{"CloseTimeout", c.CloseTimeout}, {"ProposeTimeout", c.ProposeTimeout}, {"LockWait", c.LockWait},
		{"AcceptWait", c.AcceptWait}, {"MaxAcceptWait", c.MaxAcceptWait}, {"WatchInterval", c.WatchInterval},
	} {
		check(f.is > 0, "transport: %s is %v, want more than 0", f.name, f.is)
	}
	for _, f := range []struct {
		name string
		is   int
	}{
		{"MaxConnections", c.MaxConnections}, {"MaxConnectionsPerHost", c.MaxConnectionsPerHost},
		{"MaxHandshakes", c.MaxHandshakes}, {"MaxHandshakesPerHost", c.MaxHandshakesPerHost},
		{"MaxOperations", c.MaxOperations}, {"MaxLinks", c.MaxLinks}, {"MaxTokens", c.MaxTokens},
		{"MaxTransactionMessages", c.MaxTransactionMessages}, {"MaxTransactionBytes", c.MaxTransactionBytes},
		{"MaxCredit", int(c.MaxCredit)}, {"MaxLinkBytes", c.MaxLinkBytes}, {"MaxConnBytes", c.MaxConnBytes},
		{"MaxClientBytes", c.MaxClientBytes}, {"MaxBatchBytes", int(c.MaxBatchBytes)},
		{"MaxEnqueueBytes", c.MaxEnqueueBytes}, {"MaxLock", int(c.MaxLock)}, {"MaxLockBytes", int(c.MaxLockBytes)},
		{"MaxUnsettled", c.MaxUnsettled}, {"MaxSettle", c.MaxSettle}, {"MaxWriteBytes", c.MaxWriteBytes},
		{"MaxRequests", c.MaxRequests}, {"MaxConnRequests", c.MaxConnRequests}, {"MaxReplies", c.MaxReplies},
		{"MaxHTTPRequests", c.MaxHTTPRequests},
	} {
		check(f.is > 0, "transport: %s is %d, want more than 0", f.name, f.is)
	}
	return errors.Join(errs...)
}
