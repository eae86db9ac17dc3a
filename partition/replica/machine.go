package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// machine adapts a Machine to raft. It holds the only lock around the state. Raft calls it from one
// goroutine; queries come from many.
type machine struct {
	bodies Bodies
	fail   func(error)
	ended  <-chan struct{} // the replica closes: a parked goroutine ends
	notify func()          // entries were applied

	mu sync.Mutex
	m  Machine
	// applied is the index of the last entry applied or restored. It is written with mu held, and read without: who
	// looks whether the replica advances must not wait for an entry that takes long.
	applied atomic.Uint64
	broken  bool // an entry could not be applied: nothing may be, ever after
	// restoring says that the state is that of a snapshot whose bodies are not there yet, nor its index.
	restoring bool
	// members are those of the last committed configuration, nil before the first one. Raft itself tells neither the index
	// nor whether what it names is committed. It is written by raft's goroutine and read without a lock, as applied is.
	members atomic.Pointer[membership]
	// imaged returns the configuration that stands beside the newest snapshot, index 0 without one; nil in tests.
	imaged func() membership
	// unrestored is why the last snapshot could not be restored; raft only logs it.
	unrestored error
	// failLive fails the replica if raft runs; nil where there is none.
	failLive func(error)

	// catalog is what the catalog's machine holds, nil in other groups. It is written with mu held, and read without.
	catalog atomic.Pointer[catalog.View]

	spans   []Span              // of the entry being applied
	digests *digests            // of checkpoints
	drops   *dropLog            // nil if nobody is told of dropped messages
	tallies *Tallies            // nil if nobody counts
	onApply func(time.Duration) // see Config; nil for nobody
	// ledEpoch is the epoch of the last leadership of this replica: entries with it were proposed here.
	ledEpoch atomic.Uint64

	// longest is how long ApplyBatch took at most, paused how long a snapshot kept it from running.
	longest, paused peak

	// entries and bytes of log since the last snapshot.
	sinceEntries atomic.Uint64
	sinceBytes   atomic.Int64
}

// membership is a committed configuration of the group, and the index of its entry.
type membership struct {
	raft.Configuration
	index uint64
}

// applied is what ApplyBatch answers for one entry.
type applied struct {
	index  uint64
	result fsm.Result
}

var (
	_ raft.BatchingFSM        = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM: one answer per entry, of type *applied for commands.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	began := time.Now()
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogConfiguration {
			c, err := decodeMembers(l.Data)
			if err != nil {
				m.halt(fmt.Errorf("configuration entry %d: %w", l.Index, err))
				continue
			}
			m.StoreConfiguration(l.Index, c)
			continue
		}
		if l.Type != raft.LogCommand {
			continue
		}
		a, err := m.apply(l)
		if err != nil {
			m.halt(fmt.Errorf("apply log entry %d: %w", l.Index, err))
			continue
		}
		answers[i] = a
		m.sinceEntries.Add(1)
		m.sinceBytes.Add(int64(cost(l)))
	}
	m.notify()
	took := time.Since(began)
	m.longest.note(took)
	if m.onApply != nil {
		m.onApply(took)
	}
	return answers
}

// StoreConfiguration implements raft.ConfigurationStore. Without it a configuration entry would not
// advance the index that raft gives to a snapshot.
func (m *machine) StoreConfiguration(index uint64, c raft.Configuration) {
	m.mu.Lock()
	m.members.Store(&membership{c, index})
	m.applied.Store(max(m.applied.Load(), index))
	m.mu.Unlock()
}

// decodeMembers is raft's decoder, which panics.
func decodeMembers(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", fsm.ErrFormat, p)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

// errBroken is what a machine that failed once says to everything.
var errBroken = errors.New("state machine has failed before")

// apply applies one entry. Skipping an entry would make this replica differ from the others, so any
// error must stop the replica.
func (m *machine) apply(l *raft.Log) (a *applied, err error) {
	e, err := fsm.DecodeEntry(l.Data)
	if err != nil {
		return nil, err
	}
	if m.spans = bodySpans(m.spans[:0], e); len(m.spans) > 0 {
		if err := m.bodies.Put(l.Index, l.Data, m.spans); err != nil {
			return nil, fmt.Errorf("keep bodies: %w", err)
		}
	}
	a = &applied{index: l.Index}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errBroken
	}
	m.broken = true
	defer func() {
		// A broken invariant stops this replica, not the process with all the others in it.
		if p := recover(); p != nil {
			a, err = nil, fmt.Errorf("state machine panicked: %v\n%s", p, debug.Stack())
		}
	}()
	a.result = m.m.Apply(l.Index, e)
	if len(a.result.Outcomes) != len(e.Requests) {
		return nil, fmt.Errorf("state machine gave %d outcomes for %d requests",
			len(a.result.Outcomes), len(e.Requests))
	}
	if m.drops != nil {
		m.drops.note(a.result.Drops, m.bodies, time.Now())
	}
	if m.tallies != nil {
		if e.Epoch != 0 && e.Epoch == m.ledEpoch.Load() {
			m.tallies.add(&a.result)
		}
		m.tallies.forget(a.result.Dropped)
	}
	a.result.Tallies = nil // of this entry alone
	for _, ref := range a.result.Freed {
		m.bodies.Free(ref.Index, ref.Offset, ref.Length)
	}
	m.publishLocked() // before the index: who waits for an index sees what came with it
	m.applied.Store(l.Index)
	m.broken = false
	if isCheckpoint(l) {
		m.digests.compute(l.Index, m.m.Capture())
	}
	return a, nil
}

// bodySpans appends where the bodies are that the entry carries, in their order.
func bodySpans(spans []Span, e *fsm.Entry) []Span {
	for i := range e.Requests {
		if c, ok := e.Requests[i].Command.(*fsm.BodyPart); ok && len(c.Body) > 0 {
			spans = append(spans, Span{Offset: c.BodyOffset, Length: uint32(len(c.Body))})
			continue
		}
		fsm.EachMessage(e.Requests[i].Command, func(m *fsm.Message) {
			if len(m.Body) > 0 {
				spans = append(spans, Span{Offset: m.BodyOffset, Length: uint32(len(m.Body))})
			}
		})
	}
	return spans
}

// halt fails the replica and keeps raft's goroutine until the replica closes. It returns then, so
// that raft answers the future of the entry; raft is shut down by that time and applies nothing of
// consequence, and this machine nothing at all.
func (m *machine) halt(err error) {
	m.mu.Lock()
	m.broken = true
	m.mu.Unlock()
	m.fail(err)
	<-m.ended
}

// view calls f with the state as it is now. f must not keep the Machine.
func (m *machine) view(f func(Machine, uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.m, m.applied.Load())
}

// publishLocked shows readers what a Viewer holds now.
func (m *machine) publishLocked() {
	if v, ok := m.m.(Viewer); ok {
		m.catalog.Store(v.View())
	}
}

// index returns the last applied index.
func (m *machine) index() uint64 { return m.applied.Load() }

// clocks returns the stamped clocks and the next deadlines.
func (m *machine) clocks() (c clocks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.wall, c.lease = m.m.Clocks()
	c.dueWall, c.dueLease = m.m.NextDeadline()
	return c
}

type clocks struct {
	wall, dueWall   fsm.Wall
	lease, dueLease fsm.Lease
}

// fill reads the bodies of deliveries. A body that is gone (fs.ErrNotExist) is an error to the caller, who may ask
// again if messages can be freed meanwhile. A body that cannot be read fails the replica: asked again, it would
// answer the same, and another replica has what this one has lost.
func (m *machine) fill(ds []fsm.Delivery) error {
	for i := range ds {
		ref := ds[i].Ref
		if ref.Length == 0 {
			continue
		}
		b, err := m.bodies.Read(ref.Index, ref.Offset, ref.Length)
		if err != nil {
			err = fmt.Errorf("read body of message %d: %w", ds[i].Seq, err)
			if !errors.Is(err, fs.ErrNotExist) && !m.closing() {
				m.fail(err)
			}
			return err
		}
		ds[i].Body = b
	}
	return nil
}

// fillRest completes the bodies of which fill has read the beginning.
func (m *machine) fillRest(ds []fsm.Delivery) error {
	for i := range ds {
		for _, ref := range ds[i].Rest {
			part := []fsm.Delivery{{Seq: ds[i].Seq, Ref: ref}}
			if err := m.fill(part); err != nil {
				return err
			}
			ds[i].Body = append(ds[i].Body, part[0].Body...)
		}
		ds[i].Rest = nil
	}
	return nil
}

// closing reports whether the replica closes: its stores may be closed by now.
func (m *machine) closing() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// A snapshot is a preamble, the image, and what Bodies writes behind it.
const (
	snapshotMagic    = "BBRP"
	snapshotVersion  = 1
	snapshotPreamble = 4 + 1 + 8 + 4 // magic, version, applied index, crc32c of these
	imageBuffer      = 256 << 10     // writes of an image reach the disk in pieces of this size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot implements raft.FSM: it captures, Persist writes.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	began := time.Now()
	defer func() { m.paused.note(time.Since(began)) }()
	m.mu.Lock()
	if m.broken {
		m.mu.Unlock()
		return nil, errBroken
	}
	s := &snapshot{image: m.m.Capture(), index: m.applied.Load(), failLive: m.failLive}
	m.mu.Unlock()
	// Raft does not apply while this runs, so the pin and the image are of the same entry.
	s.pin = m.bodies.Pin()
	entries, bytes := m.sinceEntries.Swap(0), m.sinceBytes.Swap(0)
	s.untaken = func() {
		m.sinceEntries.Add(entries)
		m.sinceBytes.Add(bytes)
	}
	return s, nil
}

// pin is what Bodies.Pin returns.
type pin = interface {
	io.WriterTo
	Inline(io.Writer) (int64, error)
	io.Closer
}

type snapshot struct {
	image    io.WriterTo
	index    uint64
	pin      pin
	failLive func(error) // told when the bodies cannot be written; nil for nobody
	untaken  func()      // counts the entries in it again; nil once it is on the disk
}

// Persist implements raft.FSMSnapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	s.untaken = nil
	return nil
}

func (s *snapshot) write(sink io.Writer) error {
	if err := WriteImage(sink, s.index, s.image); err != nil {
		return err
	}
	file := &watchedSink{to: sink}
	if _, err := s.pin.WriteTo(file); err != nil {
		err = fmt.Errorf("write bodies of the snapshot: %w", err)
		if file.err == nil && s.failLive != nil {
			s.failLive(err) // bodies are not written any more after an error, so no later snapshot is taken
		}
		return err
	}
	return nil
}

// watchedSink remembers that a write failed.
type watchedSink struct {
	to  io.Writer
	err error
}

func (f *watchedSink) Write(p []byte) (n int, err error) {
	n, err = f.to.Write(p)
	f.err = errors.Join(f.err, err)
	return n, err
}

// WriteImage writes the image of a state that has applied the entry index, up to its bodies.
func WriteImage(to io.Writer, index uint64, image io.WriterTo) error {
	w := bufio.NewWriterSize(to, imageBuffer)
	head := append(make([]byte, 0, snapshotPreamble), snapshotMagic...)
	head = append(head, snapshotVersion)
	head = binary.BigEndian.AppendUint64(head, index)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write snapshot preamble: %w", err)
	}
	if _, err := image.WriteTo(w); err != nil {
		return fmt.Errorf("write state image: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write state image: %w", err)
	}
	return nil
}

// Release implements raft.FSMSnapshot. Raft calls it also if there was no place for the snapshot.
func (s *snapshot) Release() {
	if s.untaken != nil {
		s.untaken()
	}
	_ = s.pin.Close() // unpinning has nothing to report to raft
}

// Restore implements raft.FSM. An error leaves a state that must not be used, and fails the replica: raft would have the
// snapshot sent again, and again.
func (m *machine) Restore(r io.ReadCloser) error {
	index, err := m.restore(r)
	if err != nil {
		err = fmt.Errorf("restore snapshot: %w", err)
	}
	m.restored(index, err)
	if err != nil && m.failLive != nil {
		m.failLive(err)
	}
	return err
}

// restored notes how the restore of a snapshot ended.
func (m *machine) restored(index uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken, m.unrestored, m.restoring = err != nil, err, false
	if err != nil {
		return
	}
	m.applied.Store(index)
	if m.imaged != nil {
		if image, known := m.imaged(), m.members.Load(); known == nil || image.index > known.index {
			m.members.Store(&image)
		}
	}
	m.sinceEntries.Store(0)
	m.sinceBytes.Store(0)
	m.notify()
}

// trouble is why the last snapshot could not be restored, nil if it was.
func (m *machine) trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unrestored
}

func (m *machine) restore(r io.Reader) (index uint64, err error) {
	if index, err = ReadPreamble(r); err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.restoring = true
	if err = m.m.Restore(r); err == nil {
		m.publishLocked()
	}
	m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := m.bodies.Restore(r); err != nil {
		return 0, fmt.Errorf("bodies: %w", err)
	}
	return index, nil
}

// ReadPreamble reads what a snapshot begins with, and returns the index that the image has applied.
func ReadPreamble(r io.Reader) (index uint64, err error) {
	head := make([]byte, snapshotPreamble)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, fmt.Errorf("preamble: %w", err)
	}
	sum := binary.BigEndian.Uint32(head[snapshotPreamble-4:])
	if string(head[:4]) != snapshotMagic || head[4] != snapshotVersion ||
		sum != crc32.Checksum(head[:snapshotPreamble-4], castagnoli) {
		return 0, fmt.Errorf("preamble: %w", fsm.ErrFormat)
	}
	return binary.BigEndian.Uint64(head[5:]), nil
}
