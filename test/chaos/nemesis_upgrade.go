package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Faults of an upgrade. All nodes begin with the program of an earlier commit, if one is at hand. Each may get this program
// or the earlier one again, as often as chance says, until the upgrade is finalized.

// needEarlier says why no program can be exchanged.
func needEarlier(b *bed) string {
	switch {
	case b.cfg.earlier == "":
		return "no earlier program is at hand"
	case b.finalized:
		return "the upgrade is finalized"
	}
	return ""
}

// program has the next start of a node run a program.
func (b *bed) program(n *node, path string) {
	n.runs = path
	if b.network == overLoopback {
		n.Program(path)
		return
	}
	n.Program("nsenter", "--net=/run/netns/"+netns(n.number), path)
}

// running says why a node does not run a program, nil if it does.
func (n *node) running(path string) error {
	is, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.Pid()))
	if err == nil && is != path {
		err = fmt.Errorf("%s runs %s", n.ID, is)
	}
	return err
}

// exchangeProgram ends a node, mostly in good order, and starts it with the other program, which it keeps.
func exchangeProgram(s *strike) error {
	n, how := s.n, syscall.SIGTERM
	if s.rng.IntN(4) == 0 {
		how = syscall.SIGKILL
	}
	next := s.bed.cfg.earlier
	s.what = n.ID + " gets the earlier program"
	if n.runs == next {
		next = s.bed.cfg.binary
		s.what = n.ID + " gets this program"
	}
	if err := n.end(how, 30*time.Second); err != nil {
		return err
	}
	s.bed.program(n, next)
	s.bites = func(*bed) error { return n.running(next) }
	return n.Start()
}

// finishUpgrade gives this program to each node that has the earlier one, one after the other, and finalizes the upgrade.
func finishUpgrade(s *strike) error {
	ctx, cancel := context.WithTimeout(context.Background(), placeLimit)
	defer cancel()
	late := 0
	for _, n := range s.bed.nodes {
		if n.runs != s.bed.cfg.earlier {
			continue
		}
		late++
		if err := n.end(syscall.SIGTERM, 30*time.Second); err != nil {
			return err
		}
		s.bed.program(n, s.bed.cfg.binary)
		if err := n.Start(); err != nil {
			return err
		}
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	s.what = fmt.Sprintf("%d nodes had the earlier program", late)
	var err error
	for ctx.Err() == nil { // a node that has just come is not known to all at once
		if err = s.bed.command(ctx, s.n, "upgrade/finalize", nil); err == nil {
			break
		}
		wait(ctx, time.Second)
	}
	if err != nil {
		return err
	}
	s.bed.finalized = true
	s.bites = func(b *bed) error {
		for _, n := range b.nodes {
			if err := n.running(b.cfg.binary); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}
