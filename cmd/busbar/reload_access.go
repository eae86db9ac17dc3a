package main

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// prepareAccess makes the keys of policies and the log level those of the configuration. A connection whose key is gone
// ends within a second.
func (r *reloader) prepareAccess(_ context.Context, next *Config, p *prepared) error {
	all, err := namespacePolicies(next.Policies)
	if err != nil {
		return err
	}
	p.then(func() {
		r.n.policies.SetTolerance(next.ClockSkew)
		r.n.keys.replace(all)
		r.n.log.SetLevel(next.logLevel()) // the rooms' logs share it
	})
	return nil
}

// prepareIssuers reads the keys of issuers that are files. The keys of other issuers are fetched later, as at the start.
func (r *reloader) prepareIssuers(_ context.Context, next *Config, p *prepared) error {
	resolved, err := resolveIssuers(next.Issuers)
	if err != nil {
		return err
	}
	documents := map[string][]byte{}
	for _, i := range next.Issuers {
		if !i.isFile() {
			continue
		}
		text, err := readBounded(i.Keys)
		if err == nil {
			err = auth.CheckKeys(text)
		}
		if err != nil {
			return fmt.Errorf("keys of issuer %s: %w", i.Name, err)
		}
		documents[i.Name] = text
	}
	sameDocuments := reflect.DeepEqual(documents, r.documents)
	if r.documents != nil && sameDocuments && reflect.DeepEqual(next.Issuers, r.running.Load().Issuers) {
		return nil
	}
	if !sameDocuments {
		p.files = append(p.files, "issuers")
	}
	p.then(func() {
		r.documents = documents
		if err := r.n.policies.ReplaceIssuers(resolved); err != nil {
			r.log.Error("issuers", "error", err) // resolveIssuers has checked them
		}
		for name, text := range documents {
			if err := r.n.policies.SetKeys(name, text); err != nil {
				r.log.Error("keys of an issuer", "issuer", name, "error", err)
			}
		}
		r.n.issuers.replace(r.n.background, next.Issuers)
	})
	return nil
}

// prepareGossip makes the ring of keys that of the configuration.
func (r *reloader) prepareGossip(_ context.Context, next *Config, p *prepared) error {
	keys, err := next.gossipRing()
	if err != nil {
		return err
	}
	if slices.EqualFunc(keys, r.gossip, bytes.Equal) {
		return nil
	}
	if next.GossipKeysFile != "" {
		p.files = append(p.files, "gossip-keys-file")
	}
	p.then(func() {
		r.gossip = keys
		if err := r.n.gossip.SetKeys(keys); err != nil {
			r.log.Error("keys of gossip", "error", err) // they were checked
		}
	})
	return nil
}

// prepareLimits makes the limits those of the configuration. No limit ends a connection, or removes an entity.
func (r *reloader) prepareLimits(_ context.Context, next *Config, p *prepared) error {
	front := next.frontConfig(r.n.incarnation)
	if err := front.Validate(); err != nil {
		return err
	}
	p.then(func() {
		if err := r.n.front.SetLimits(front); err != nil {
			r.log.Error("limits", "error", err) // they were checked
		}
		r.n.host.SetLimits(next.Limits.namespace())
		r.n.host.SetMoveRate(int64(next.MoveRate))
	})
	return nil
}

// preparePartitions refuses a lower number, and asks the cluster for a higher one.
func (r *reloader) preparePartitions(_ context.Context, next *Config, p *prepared) error {
	if next.Partitions != r.running.Load().Partitions {
		if err := tooFewPartitions(next.wantedPartitions(), r.n.partitions()); err != nil {
			return err
		}
	}
	p.then(func() { r.n.host.SetPartitions(next.wantedPartitions()) })
	return nil
}

// openIssuers makes the configured issuers known. A key file that cannot be read keeps the node from starting. An
// issuer that does not answer does not: its tokens are refused until it does.
func (n *node) openIssuers(context.Context) error {
	n.issuers = &keyring{policies: n.policies, log: n.log.Named("issuers"), client: newKeyClient()}
	n.onClose(func(context.Context) error {
		if n.issuers.stop != nil {
			n.issuers.stop()
		}
		return nil
	})
	p := &prepared{}
	if err := n.reloader.prepareIssuers(context.Background(), &n.cfg, p); err != nil {
		return exit.With(exit.Usage, err)
	}
	p.apply()
	return nil
}
