package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func (n *node) serveTestKinds() {
	n.serveBegun()
	n.Handle(kindEcho, func(_ context.Context, _ fsm.NodeID, b []byte) ([]byte, error) { return b, nil })
	n.Handle(kindFail, func(_ context.Context, _ fsm.NodeID, b []byte) ([]byte, error) {
		return nil, errors.New(string(b))
	})
	n.Handle(kindHuge, func(context.Context, fsm.NodeID, []byte) ([]byte, error) {
		return make([]byte, n.cfg.MaxFrameBytes+1), nil
	})
	park := func(ctx context.Context) ([]byte, error) {
		n.parked <- struct{}{}
		<-ctx.Done()
		n.unparked <- struct{}{}
		return nil, ctx.Err()
	}
	n.Handle(kindPark, func(ctx context.Context, _ fsm.NodeID, _ []byte) ([]byte, error) {
		return park(ctx)
	})
	n.Handle(kindSlow, func(context.Context, fsm.NodeID, []byte) ([]byte, error) {
		n.parked <- struct{}{}
		time.Sleep(slowTime)
		return nil, nil
	})
	n.HandleStream(kindDrain, func(
		_ context.Context, _ fsm.NodeID, header []byte, body io.Reader,
	) ([]byte, error) {
		count, sum := uint64(0), uint64(0)
		buf := make([]byte, 32<<10)
		for {
			k, err := body.Read(buf)
			for _, c := range buf[:k] {
				sum += uint64(c)
			}
			count += uint64(k)
			if errors.Is(err, io.EOF) {
				return drained(header, count, sum), nil
			}
			if err != nil {
				return nil, err
			}
		}
	})
	n.HandleStream(kindLazy, func(
		context.Context, fsm.NodeID, []byte, io.Reader,
	) ([]byte, error) {
		return []byte("no thanks"), nil
	})
	n.HandleStream(kindStall, func(
		ctx context.Context, _ fsm.NodeID, _ []byte, _ io.Reader,
	) ([]byte, error) {
		return park(ctx)
	})
}

func drained(header []byte, count, sum uint64) []byte {
	b := append([]byte(nil), header...)
	b = binary.BigEndian.AppendUint64(b, count)
	return binary.BigEndian.AppendUint64(b, sum)
}
