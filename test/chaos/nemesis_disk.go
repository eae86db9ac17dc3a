package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func (s *strike) fill(n *node) error {
	n.expectEnd()
	// Given back first, then whoever ended for it is started again.
	s.onHeal(func() error { return restart(n) })
	back, err := n.disk.fill(s.limit)
	if back != nil {
		s.onHeal(back)
	}
	return err
}

func full(nodes ...*node) func(*bed) error {
	return func(*bed) error {
		for _, n := range nodes {
			if !n.disk.isFull() {
				return fmt.Errorf("%s has room", n.ID)
			}
		}
		return nil
	}
}

func fillDisk(s *strike) error {
	s.what, s.bites = s.n.ID, full(s.n)
	return s.fill(s.n)
}

func fillMajority(s *strike) error {
	two := s.bed.nodes[:len(s.bed.nodes)/2+1]
	s.bites = full(two...)
	for _, n := range two {
		s.what += n.ID + " "
		if err := s.fill(n); err != nil {
			return err
		}
	}
	return nil
}

// stall lets every write of a node hang in the kernel. A node may end itself over it; it then hangs
// until the disk moves again, and is started anew.
func stall(s *strike) error {
	n := s.n
	s.what = n.ID
	n.expectEnd()
	began := time.Now()
	s.onHeal(func() error { return reviveAfter(n, endAfter(time.Since(began))) })
	s.bites = func(*bed) error {
		if !n.disk.hangs() {
			return errors.New("writes go through")
		}
		return nil
	}
	thaw, err := n.disk.freeze(s.limit)
	if thaw != nil {
		s.onHeal(thaw)
	}
	return err
}

// readOnly has the kernel turn a disk read-only. The node goes on without its replicas until it is started
// anew on a disk that can be written.
func readOnly(s *strike) error {
	n := s.n
	s.what = n.ID
	n.expectEnd()
	s.onHeal(func() error {
		if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
			return err
		}
		if err := errors.Join(n.disk.detach(), n.disk.attach()); err != nil {
			return err
		}
		return restart(n)
	})
	s.bites = func(*bed) error {
		if !n.disk.isReadOnly() {
			return errors.New("writes go through")
		}
		return nil
	}
	return n.disk.goneReadOnly()
}

// endAfter returns for how long a node may still end itself after a stall. A node decides to do so when a call hangs for 15 s,
// and then stops in good order.
func endAfter(stalled time.Duration) time.Duration {
	if stalled > 14*time.Second {
		return 30 * time.Second
	}
	return 3 * time.Second
}

// reviveAfter starts a node again if it ends itself within a time, or has ended.
func reviveAfter(n *node, wait time.Duration) error {
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if n.Pid() == 0 {
			return n.Start()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = false
	return nil
}

// losePower takes the power from nodes at the same moment: the disks forget what was not synced, the
// processes are gone.
func (s *strike) losePower(nodes ...*node) error {
	forgot := 0
	for _, n := range nodes {
		n.expectEnd()
		if err := n.disk.losePower(); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
			return err
		}
		if err := n.disk.detach(); err != nil {
			return err
		}
		if err := n.disk.attach(); err != nil {
			return err
		}
		if n.disk.forgot() {
			forgot++
		}
		s.what += n.ID + " "
		s.onHeal(func() error { return restart(n) })
	}
	s.bites = func(*bed) error {
		if forgot < len(nodes) {
			return fmt.Errorf("%d of %d disks forgot what was not synced", forgot, len(nodes))
		}
		return nil
	}
	return nil
}

func powerLoss(s *strike) error    { return s.losePower(s.n) }
func powerLossAll(s *strike) error { return s.losePower(s.bed.nodes...) }

// damageFile changes a file of a node that is down. The node must notice or not need it; afterwards
// the file is put back if nobody else has written it, and the node started anew.
func damageFile(s *strike) error {
	n := s.n
	if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
		return err
	}
	s.onHeal(func() error { return restart(n) })
	d, err := damageOne(n.Dir, s.rng)
	if err != nil {
		return err
	}
	file, _ := filepath.Rel(n.Dir, d.file)
	s.what = fmt.Sprintf("%s: %s: %s", n.ID, file, d.kind)
	s.bites = func(*bed) error {
		if string(d.before) == string(d.after) {
			return errors.New("the damage changed nothing")
		}
		return nil
	}
	s.onHeal(func() error {
		n.expectEnd()
		if err := n.end(syscall.SIGKILL, 10*time.Second); err != nil {
			return err
		}
		if d.untouched() {
			return d.write(d.before)
		}
		s.what += " (the node has written the file anew)"
		return nil
	})
	n.mu.Lock()
	n.expected = true
	n.mu.Unlock()
	if err := n.Start(); err != nil {
		return err
	}
	n.expectEnd() // to refuse is right
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		s.what += ", refused: " + strings.TrimSpace(n.Log(160))
	} else {
		s.what += ", serves"
	}
	return nil
}

func shorten(s string) string { return s[:min(len(s), 160)] }
