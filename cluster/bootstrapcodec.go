package cluster

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// Requests of Bootstrap; see docs/formats/mesh.md.
const (
	opTell   uint8 = 1 // what have you written?
	opAgree  uint8 = 2 // would you accept this list, and no other for a while?
	opAccept uint8 = 3 // write this list
)

// bootstrapVersion is of the questions, the answers and the files.
const bootstrapVersion = 1

type question struct {
	op     uint8
	backed bool   // the list has been accepted by some node
	round  uint64 // ties an accept to its agree
	list   []fsm.NodeID
}

type answer struct {
	yes       bool
	confirmed bool
	list      []fsm.NodeID // accepted or confirmed; nil if nothing was written
}

func flag(set bool, bit uint8) uint8 {
	if set {
		return bit
	}
	return 0
}

func appendList(b []byte, list []fsm.NodeID) []byte {
	b = append(b, bootstrapVersion, byte(len(list)))
	for _, id := range list {
		b = appendText(b, string(id))
	}
	return b
}

// list reads a sorted list without doubles; nil if it is empty.
func (r *gossipReader) list() (list []fsm.NodeID) {
	if v := r.number(1); r.err == nil && v != bootstrapVersion {
		r.err = fmt.Errorf("%w: list version %d, want %d", errGossip, v, bootstrapVersion)
	}
	n := int(r.number(1))
	if r.err == nil && n > maxBootstrapNodes {
		r.err = fmt.Errorf("%w: list of %d nodes", errGossip, n)
	}
	for range n {
		id := r.node(false)
		if r.err == nil && len(list) > 0 && id <= list[len(list)-1] {
			r.err = fmt.Errorf("%w: list is not sorted", errGossip)
		}
		if r.err != nil {
			return nil
		}
		list = append(list, id)
	}
	return list
}

func appendQuestion(b []byte, q question) []byte {
	b = append(b, q.op, flag(q.backed, 1))
	b = binary.BigEndian.AppendUint64(b, q.round)
	return appendList(b, q.list)
}

func parseQuestion(b []byte) (question, error) {
	r := gossipReader{b: b}
	q := question{op: uint8(r.number(1)), backed: r.number(1) != 0, round: r.number(8), list: r.list()}
	if err := r.end(); err != nil {
		return question{}, err
	}
	switch {
	case q.op < opTell || q.op > opAccept:
		return question{}, fmt.Errorf("%w: question %d", errGossip, q.op)
	case q.op != opTell && q.list == nil:
		return question{}, fmt.Errorf("%w: question without a list", errGossip)
	}
	return q, nil
}

func appendAnswer(b []byte, a answer) []byte {
	return appendList(append(b, flag(a.yes, 1)|flag(a.confirmed, 2)), a.list)
}

func parseAnswer(b []byte) (answer, error) {
	r := gossipReader{b: b}
	flags := r.number(1)
	a := answer{yes: flags&1 != 0, confirmed: flags&2 != 0, list: r.list()}
	if err := r.end(); err != nil {
		return answer{}, err
	}
	if a.confirmed && a.list == nil {
		return answer{}, fmt.Errorf("%w: confirmed nothing", errGossip)
	}
	return a, nil
}
