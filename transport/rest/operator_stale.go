package rest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// Replicas answers reads that may be stale from the replicas of this node, without a word to another one
// (S-305). Errors wrap fsm.ErrBehind if a replica has not applied the entry least, fsm.ErrNoReplica,
// fsm.ErrNotLeader if the replica here does not serve, and fsm.ErrNoEntity.
type Replicas interface {
	// PeekEntity finds an entity in the catalog here.
	PeekEntity(name string, least uint64) (*fsm.Descriptor, fsm.Reading, error)
	// Peek asks the share of d with that number; least is asked for the entry that must be applied.
	Peek(d *fsm.Descriptor, sub fsm.SubQueue, share int, q fsm.Query, least func(fsm.PartitionID) uint64) (
		fsm.Answer, fsm.Reading, error)
}

const (
	// Headers of an answer that may be stale. The first is the handle: what was read, to be given back
	// as atLeast; the other the age in milliseconds.
	headerApplied = "Busbar-Applied"
	headerAge     = "Busbar-Age"
	// maxHandle bounds the partitions that a handle names; whoever reads more uses several.
	maxHandle = 256
)

// staleView reports whether a view can be read from any replica: those that only look at the state.
func staleView(name string) bool {
	switch name {
	case "description", "locks", "history", "sessions", "messages":
		return true
	}
	return false
}

// staleRead is a request that takes what the replicas of this node have.
type staleRead struct {
	seen map[fsm.PartitionID]uint64 // the handle: given by the client, and what this request read
	age  fsm.Millis                 // of the oldest replica read
	read map[fsm.PartitionID]fsm.Reading
}

// staleness reads the parameters stale and atLeast and takes them away; nil is a read as of now.
func (q *inspection) staleness() (*staleRead, error) {
	stale, handle := q.values.Get("stale"), q.values.Get("atLeast")
	asked := q.values.Has("atLeast")
	delete(q.values, "stale")
	delete(q.values, "atLeast")
	switch stale {
	case "true":
	case "", "false":
		if asked {
			return nil, badRequest("atLeast goes with stale=true: without it a read is as of now.")
		}
		return nil, nil
	default:
		return nil, badRequest("stale must be true or false, not '%s'.", clip(stale))
	}
	s := &staleRead{seen: map[fsm.PartitionID]uint64{}, read: map[fsm.PartitionID]fsm.Reading{}}
	if handle == "" {
		return s, nil
	}
	pairs := strings.Split(handle, ",")
	if len(pairs) > maxHandle {
		return nil, badRequest("atLeast names more than %d partitions.", maxHandle)
	}
	for _, pair := range pairs {
		partition, index, _ := strings.Cut(pair, ".")
		p, err := strconv.ParseUint(partition, 10, 16)
		n, err2 := strconv.ParseUint(index, 10, 64)
		if err != nil || err2 != nil {
			return nil, badRequest("atLeast must be what an answer had in %s, not '%s'.", headerApplied, clip(handle))
		}
		s.seen[fsm.PartitionID(p)] = max(s.seen[fsm.PartitionID(p)], n)
	}
	return s, nil
}

func (s *staleRead) least(p fsm.PartitionID) uint64 { return s.seen[p] }

// note remembers what was read. Of several readings of one partition the oldest counts for the answer, and the newest
// for the handle. Later reads must not be older than any part of this one.
func (s *staleRead) note(r fsm.Reading) {
	if old, again := s.read[r.Partition]; !again || r.Index < old.Index {
		s.read[r.Partition] = r
	}
	s.seen[r.Partition] = max(s.seen[r.Partition], r.Index)
	s.age = max(s.age, r.Age)
}

// entity finds the entity in the catalog here.
func (s *staleRead) entity(from Replicas, name string) (*fsm.Descriptor, error) {
	d, reading, err := from.PeekEntity(name, s.least(fsm.CatalogPartition))
	if err != nil {
		return nil, staleProblem(err)
	}
	s.note(reading)
	return d, nil
}

// query asks the replica of a share here.
func (s *staleRead) query(q *inspection, share int, ask fsm.Query) (fsm.Answer, error) {
	a, reading, err := q.o.deps.Replicas.Peek(q.d, q.sub, share, ask, s.least)
	if err != nil {
		return a, staleProblem(err)
	}
	s.note(reading)
	return a, nil
}

// staleProblem says why this node cannot answer, and who can.
func staleProblem(err error) error {
	switch {
	case errors.Is(err, fsm.ErrNoReplica):
		return &problem{status: http.StatusMisdirectedRequest, text: "This node has " + err.Error() +
			": ask one of those, or without stale=true.", cause: err}
	case errors.Is(err, fsm.ErrBehind), errors.Is(err, fsm.ErrNotLeader), errors.Is(err, fsm.ErrUnavailable):
		return &problem{status: http.StatusServiceUnavailable, subCode: 50004, text: "The server is busy, retry the " +
			"operation or ask another node: " + err.Error() + ".", cause: err}
	}
	return err
}

// handle is what the client gives back to never read what is older.
func (s *staleRead) handle() string {
	pairs := make([]string, 0, len(s.seen))
	for _, p := range slices.Sorted(maps.Keys(s.seen)) {
		pairs = append(pairs, fmt.Sprintf("%d.%d", p, s.seen[p]))
	}
	return strings.Join(pairs, ",")
}

// StaleView is what an answer says of the replicas that it was read from.
type StaleView struct {
	Handle    string        `json:"handle"`
	AgeMillis int64         `json:"ageMillis"` // of the oldest
	Applied   []AppliedView `json:"applied"`
}

// AppliedView is one of these replicas.
type AppliedView struct {
	Partition fsm.PartitionID `json:"partition"` // 0 is the catalog
	Index     uint64          `json:"index"`
	AgeMillis int64           `json:"ageMillis"`
}

// tell adds to an answer what it was read from.
func (s *staleRead) tell(value any, h http.Header) {
	v := StaleView{Handle: s.handle(), AgeMillis: int64(s.age)}
	for _, p := range slices.Sorted(maps.Keys(s.read)) {
		r := s.read[p]
		v.Applied = append(v.Applied, AppliedView{Partition: p, Index: r.Index, AgeMillis: int64(r.Age)})
	}
	h.Set(headerApplied, v.Handle)
	h.Set(headerAge, strconv.FormatInt(v.AgeMillis, 10))
	if fields, ok := value.(map[string]any); ok { // every view that may be stale is one
		fields["stale"] = v
	}
}
