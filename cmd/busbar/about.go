package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/doctor"
)

// aboutLimit bounds the checks of a node that tells of itself; some of them wait for a commit.
const aboutLimit = time.Second

// about is what this node says of itself, to the node that an operator asks.
func (n *node) about(ctx context.Context) json.RawMessage {
	text, err := json.Marshal(n.says(ctx, time.Now()))
	if err != nil { // the value is made of strings and numbers
		n.log.Error("what this node says of itself", "error", err)
		return nil
	}
	return text
}

func (n *node) says(ctx context.Context, now time.Time) doctor.Node {
	cfg := &n.cfg
	if running := n.reloader.running.Load(); running != nil {
		cfg = running
	}
	out := doctor.Node{Version: version, UptimeMillis: now.Sub(n.started).Milliseconds(), Settings: sharedSettings(cfg),
		Certificate: tellCertificate(n.certificates.Load(), cfg, now)}
	if free, total, err := n.dir.Space(); err == nil {
		out.DiskFree, out.DiskTotal = free, total
	}
	ctx, cancel := context.WithTimeout(ctx, aboutLimit)
	defer cancel()
	for _, c := range n.host.Readiness(ctx) {
		if c.Err != nil {
			out.Faults = append(out.Faults, doctor.Fault{Name: c.Name, Reason: c.Err.Error(), Readiness: true})
		}
	}
	for _, a := range n.alarms.list() {
		out.Faults = append(out.Faults, doctor.Fault{Name: a.Name, Reason: a.Reason})
	}
	return out
}

// tellCertificate is what the node says of its certificates, nil if it has none.
func tellCertificate(c *certificates, cfg *Config, now time.Time) *doctor.Certificate {
	if c == nil || c.shown == nil && len(c.authorities) == 0 {
		return nil
	}
	chain := c.chain()
	out := &doctor.Certificate{Expires: earliest(slices.Concat(chain, c.authorities))}
	if _, fault := c.faults(cfg, now); fault != nil {
		out.Fault = fault.Error()
	}
	if len(chain) > 0 && len(cfg.TLSListen) > 0 {
		out.Unnamed = unnamedHosts(cfg, chain[0])
	}
	if len(c.authorities) > 0 {
		var all []string
		for _, one := range c.authorities {
			sum := sha256.Sum256(one.Raw)
			all = append(all, hex.EncodeToString(sum[:4]))
		}
		slices.Sort(all)
		out.Authorities = fmt.Sprintf("%s", slices.Compact(all))
	}
	return out
}

// sharedSettings are those that every node of a cluster should have alike. Those of access stand as a digest.
func sharedSettings(c *Config) map[string]string {
	all := settingValues(c)
	out := map[string]string{}
	for _, name := range []string{"replication-factor", "namespace", "tier", "lift-limits", "max-lock-duration",
		"require-node-uri", "limits.entities", "limits.subscriptions", "limits.sql-filters", "limits.correlation-filters",
		"limits.rule-text", "limits.transaction-messages", "limits.concurrent-receives"} {
		out[name] = fmt.Sprint(all[name].Interface())
	}
	for name, secrets := range map[string]any{
		"root-key": keyDigest(c.Policies), "policies": policiesShown(c), "issuers": c.Issuers,
	} {
		out[name] = doctor.SecretPrefix + digestOf(secrets)
	}
	return out
}

// policiesShown are the policies with what stands in their secrets, which do not print themselves.
func policiesShown(c *Config) (all [][]string) {
	for _, p := range c.Policies {
		all = append(all, append([]string{p.Name, string(p.Primary), string(p.Secondary)}, p.Rights...))
	}
	return all
}

// digestOf tells two values apart. It goes to other nodes only: who has it could try guesses at a weak key.
func digestOf(v any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "busbar setting: %v", v))
	return hex.EncodeToString(sum[:])
}
