package partition

import (
	"context"
	"errors"
	"strconv"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// destination returns the entity that ForwardTo names now, 0 if it names none that exists. It is false if nothing is to be
// taken. So it is while nobody can tell, and when the source has no ForwardTo any more. The queue hears of that soon.
func (f *forwarder) destination(ctx context.Context) (to fsm.EntityID, ok bool, err error) {
	if f.src.sub == fsm.TransferQueue {
		return 0, true, nil // its messages know where they go
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	src, err := f.dir.ByID(ctx, f.src.entity)
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		return 0, false, errNothing
	case err != nil:
		f.blind = true
		return 0, false, nil
	}
	name := src.ForwardTo
	if f.src.sub == fsm.DeadLetter {
		name = src.ForwardDeadLettersTo
	}
	if name == "" {
		return 0, false, nil
	}
	d, err := f.dir.Entity(ctx, catalog.Destination(name))
	switch {
	case err == nil:
		return d.ID, true, nil
	case errors.Is(err, fsm.ErrNoEntity):
		return 0, true, nil
	}
	f.blind = true
	return 0, false, nil
}

// route returns the share that a message goes to (S-211). Without a key the number decides, because a
// repetition must go to the same share. The share is -1 while the destination cannot be looked up.
func (f *forwarder) route(ctx context.Context, m *fsm.Move, msg *fsm.Message) targetKey {
	k := targetKey{entity: m.To, share: -1}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if m.To == 0 {
		return k
	}
	d, err := f.dir.ByID(ctx, m.To)
	if err != nil || len(d.Partitions) == 0 {
		return k
	}
	text := ""
	switch {
	case msg.HasSession:
		text = msg.SessionID
	case msg.PartitionKey != "":
		text = msg.PartitionKey
	case d.DetectDuplicates && msg.MessageID != "":
		text = msg.MessageID
	default:
		text = strconv.FormatUint(m.Number, 10)
	}
	k.share = int(fsm.KeyShare(text, len(d.Partitions)))
	return k
}
