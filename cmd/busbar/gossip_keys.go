package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxGossipKeys bounds the ring: a rotation needs two.
const maxGossipKeys = 8

// secrets is a YAML sequence or one comma-separated text of keys.
type secrets []secret

// UnmarshalYAML accepts both forms.
func (s *secrets) UnmarshalYAML(n *yaml.Node) error {
	var texts list
	if err := texts.UnmarshalYAML(n); err != nil {
		return err
	}
	*s = nil
	for _, text := range texts {
		*s = append(*s, secret(text))
	}
	return nil
}

// encryptsGossip reports whether there is a key of gossip, or a file for them.
func (c *Config) encryptsGossip() bool {
	return c.GossipKey != "" || len(c.GossipKeys) > 0 || c.GossipKeysFile != ""
}

// gossipRing returns the keys of gossip, the one that encrypts first. Without encryption there are none. A file has one key
// in a line; empty lines and those that begin with # do not count.
func (c *Config) gossipRing() ([][]byte, error) {
	name, keys := "gossip-keys", []secret(c.GossipKeys)
	switch {
	case c.GossipKey != "" && c.GossipKeysFile == "" && len(keys) == 0:
		name, keys = "gossip-key", []secret{c.GossipKey}
	case c.GossipKeysFile != "" && c.GossipKey == "" && len(keys) == 0:
		text, err := os.ReadFile(c.GossipKeysFile)
		if err != nil {
			return nil, fmt.Errorf("gossip-keys-file: %w", err)
		}
		name = "gossip-keys-file " + c.GossipKeysFile
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				keys = append(keys, secret(line))
			}
		}
		if len(keys) == 0 {
			return nil, fmt.Errorf("%s holds no key: write one in a line (openssl rand -base64 32)", name)
		}
	case c.GossipKey != "" || c.GossipKeysFile != "":
		return nil, errors.New("set one of gossip-key, gossip-keys and gossip-keys-file: a ring holds the one key, too")
	}
	if len(keys) > maxGossipKeys {
		return nil, fmt.Errorf("%s has %d keys, want at most %d", name, len(keys), maxGossipKeys)
	}
	var ring [][]byte
	for i, text := range keys {
		key, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("%s is not base64 of 32 bytes (key %d of %d)", name, i+1, len(keys))
		}
		for _, other := range ring {
			if bytes.Equal(other, key) {
				return nil, fmt.Errorf("%s has key %d twice", name, i+1)
			}
		}
		ring = append(ring, key)
	}
	return ring, nil
}
