package check

import "github.com/busbar-mq/busbar/test/ledger"

// LivesOf tells of each message what its clients know. A number counts that was seen before the backup: a scheduled message may
// have another one later.
func LivesOf(h *History, began int64) map[ledger.Name]ledger.Life {
	lives := map[ledger.Name]ledger.Life{}
	type place struct {
		queue  string
		number int64
	}
	who := map[place]string{}
	change := func(queue, id string, f func(*ledger.Life)) {
		name := ledger.Name{Queue: queue, ID: id}
		l := lives[name]
		f(&l)
		lives[name] = l
	}
	for _, o := range h.Ops {
		switch o.Kind {
		case Send, Schedule:
			all := o.Messages
			if len(all) == 0 {
				all = []Message{o.Message}
			}
			for _, m := range all {
				change(o.Entity, m.ID, func(l *ledger.Life) {
					l.Begun, l.Content, l.Timed = o.Invoke, m.Hash, o.Kind == Schedule
					if o.Ok() {
						l.Kept = o.Return
					}
				})
			}
			if o.Kind == Schedule && o.Ok() {
				who[place{o.Entity, o.Seq}] = o.Message.ID
			}
		case Receive, ReceiveDeferred:
			if !o.Ok() || o.Message.ID == "" {
				continue
			}
			who[place{o.Entity, o.Message.Seq}] = o.Message.ID
			if o.Return <= began {
				change(o.Entity, o.Message.ID, func(l *ledger.Life) { l.Number = o.Message.Seq })
			}
		}
	}
	for _, o := range h.Ops {
		number := o.Message.Seq
		if o.Kind == Cancel {
			number = o.Seq
		}
		id, known := who[place{o.Entity, number}]
		if o.Kind != Complete && o.Kind != Cancel || !o.Maybe() || !known {
			continue
		}
		change(o.Entity, id, func(l *ledger.Life) {
			if l.Leaving == 0 || o.Invoke < l.Leaving {
				l.Leaving = o.Invoke
			}
			if o.Ok() && (l.Gone == 0 || o.Return < l.Gone) {
				l.Gone = o.Return
			}
		})
	}
	return lives
}

// FoundIn lists what was found in places.
func FoundIn(all []Place) (found []ledger.Found) {
	for _, p := range all {
		found = append(found, ledger.Found{Name: ledger.Name{Queue: p.Entity, ID: p.Message.ID}, Number: p.Message.Seq, Content: p.Message.Hash})
	}
	return found
}
