package transport

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// The states of a transaction, as people and clients in doubt hear them.
const (
	TransactionOpen       = "open"
	TransactionCommitting = "committing"
	TransactionCommitted  = "committed"
	TransactionAborted    = "aborted"
	TransactionUnknown    = "unknown" // it may have been committed, or was never heard of
)

const (
	// ledgerTime is how long the outcome of a transaction is remembered (S-243).
	ledgerTime = 10 * time.Minute
	// maxLedger bounds the outcomes that are remembered, some 4 MiB; the oldest go first.
	maxLedger = 16_384
	// maxLedgerNames bounds the entities that are noted for one transaction.
	maxLedgerNames = 32
	// maxTransactionViews bounds one list.
	maxTransactionViews = 1_000
)

// TransactionView is one transaction of a client of this node (S-273).
type TransactionView struct {
	ID          string     `json:"id"` // in hexadecimal digits
	State       string     `json:"state"`
	Entities    []string   `json:"entities"` // that it uses
	Since       time.Time  `json:"since"`    // when it was declared
	Ended       *time.Time `json:"ended,omitempty"`
	Sends       int        `json:"sends"` // prepared
	Settlements int        `json:"settlements"`
	Client      string     `json:"client"`          // container id
	Cause       string     `json:"cause,omitempty"` // of an abort
}

// ledger remembers the transactions of this node's connections: the open ones, and for some time how
// the others ended. It decides nothing.
type ledger struct {
	mu    sync.Mutex
	all   map[string]*TransactionView
	ended []string // ids in the order in which they ended
}

func (l *ledger) begin(id []byte, client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*TransactionView{}
	}
	l.all[string(id)] = &TransactionView{ID: hex.EncodeToString(id), State: TransactionOpen,
		Since: time.Now(), Client: client}
}

// note adds an operation to an open transaction: its messages, its command if it is one, and the entities it is about.
func (l *ledger) note(id []byte, messages int, cmd fsm.Command, entities ...*fsm.Descriptor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.all[string(id)]
	if v == nil {
		return
	}
	v.Sends += messages
	if s, ok := cmd.(*fsm.Settle); ok {
		v.Settlements += len(s.Items)
	}
	for _, d := range entities {
		if len(v.Entities) < maxLedgerNames && !slices.Contains(v.Entities, d.Name) {
			v.Entities = append(v.Entities, d.Name)
		}
	}
}

func (l *ledger) committing(id []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.all[string(id)]; v != nil {
		v.State = TransactionCommitting
	}
}

// end notes how a transaction ended. A known outcome is not changed; what was in doubt may be resolved.
func (l *ledger) end(id []byte, state, cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.all[string(id)]
	if v == nil || v.State == TransactionCommitted || v.State == TransactionAborted {
		return
	}
	v.State, v.Cause = state, cause
	if v.Ended != nil {
		return
	}
	now := time.Now()
	v.Ended = &now
	l.ended = append(l.ended, string(id))
	forget := 0
	for _, old := range l.ended {
		if len(l.ended)-forget <= maxLedger && now.Sub(*l.all[old].Ended) <= ledgerTime {
			break
		}
		delete(l.all, old)
		forget++
	}
	l.ended = slices.Delete(l.ended, 0, forget)
}
