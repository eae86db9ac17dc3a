package replica

import "github.com/busbar-mq/busbar/fsm"

// Hooks are told what entries did. They must not block.
type Hooks struct {
	Wake func([]fsm.WaitKey)
	Idle func([]fsm.EntityID)
}

// tell passes on what an applied entry did.
func (h *Hooks) tell(r *fsm.Result) {
	if h == nil {
		return
	}
	if len(r.Wake) > 0 {
		h.Wake(r.Wake)
	}
	if len(r.Idle) > 0 {
		h.Idle(r.Idle)
	}
}
