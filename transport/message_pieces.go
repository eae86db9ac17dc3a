package transport

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A large body is in memory once while it is sent to a client. The sections before it are encoded apart, and the
// frames are written from both (docs/decisions/0043).

// totalBytes is the length of all pieces.
func totalBytes(pieces [][]byte) (n int) {
	for _, b := range pieces {
		n += len(b)
	}
	return n
}

const (
	// trustedBytes is how much of a message must have arrived before memory is taken for the size that its beginning
	// announces. A client that announces 100 MiB and sends none must not take them.
	trustedBytes = 8 << 20
	// maxTrust is how many times what has arrived of a message its beginning may announce, and get the memory.
	maxTrust = 8
	// storedSlack is what the stored form may take more than the message of a client that sent no message id.
	storedSlack = stored.Overhead + propertiesOverhead
)

// grow appends payload to what has arrived of a message, of at most limit bytes. The memory of a large one is doubled
// up to the limit, because append would copy it more often than it is long. After trustedBytes it gets the size that
// its beginning announces at once, so that it is in memory once. One of at most keptScratch gets it when maxTrust says so.
// taken is told how much a message gets behind trustedBytes.
func grow(to, payload []byte, limit int, taken func(bytes int)) []byte {
	need := len(to) + len(payload)
	if need <= cap(to) || need < apartFrom {
		return append(to, payload...)
	}
	trusted, room := need >= trustedBytes, min(2*cap(to), limit)
	if !trusted {
		room = min(room, trustedBytes)
	}
	beginning := to
	if len(to) == 0 {
		beginning = payload
	}
	size := amqp.AnnouncedBytes(beginning)
	if size >= need && size <= limit && (trusted || size <= min(keptScratch, maxTrust*need)) {
		room = size + storedSlack
	}
	if trusted && taken != nil {
		taken(room)
	}
	return append(append(make([]byte, 0, max(need, room)), to...), payload...)
}

// splitDelivery is appendDelivery for all sections ahead of the body; tail is a view of the others.
func splitDelivery(dst []byte, d *fsm.Delivery, peeked bool) (head, tail []byte, err error) {
	at, _, err := bodyOf(d.Body)
	if err != nil {
		return dst, nil, err
	}
	front := *d
	front.Body = d.Body[:at:at]
	head, err = appendDelivery(dst, &front, peeked)
	return head, d.Body[at:], err
}

// bodyOf finds the body sections in a stored message: where they begin, or the footer if there are none,
// and how many bytes they have.
func bodyOf(b []byte) (at, size int, err error) {
	s, err := stored.Parse(b)
	if err != nil {
		return 0, 0, err
	}
	parts, err := amqp.ParseMessage(s.Bare)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", stored.ErrMalformed, err)
	}
	return len(b) - len(parts.Body) - len(parts.Footer), len(parts.Body), nil
}

// apartFrom is the size of a message from where the copies of its body cost more than the memory that spares them.
const apartFrom = 32 << 10

// keptScratch is the largest buffer that a connection keeps for the next message.
const keptScratch = 1 << 20

// propertiesOverhead is what properties with nothing but an id take.
const propertiesOverhead = 64
