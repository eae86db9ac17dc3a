package cluster_test

import (
	"context"
	"io"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
)

// The shapes that the partition room asks for; rooms do not import each other, so they are told
// again here.
var (
	_ interface {
		Call(ctx context.Context, to fsm.NodeID, kind uint8, request []byte) ([]byte, error)
		CallStream(ctx context.Context, to fsm.NodeID, kind uint8, header []byte, body io.Reader) ([]byte, error)
		Handle(kind uint8, h func(ctx context.Context, from fsm.NodeID, request []byte) ([]byte, error))
		HandleStream(kind uint8, h func(
			ctx context.Context, from fsm.NodeID, header []byte, body io.Reader,
		) ([]byte, error))
	} = (*cluster.Mesh)(nil)
	_ interface {
		Leader(p fsm.PartitionID) (node fsm.NodeID, ok bool)
		Announce(p fsm.PartitionID, leader fsm.NodeID, term uint64)
	} = (*cluster.View)(nil)
)
