package catalog

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// ClusterVersion returns the version that every node of the cluster knows. No log may have anything
// newer.
func (v *View) ClusterVersion() fsm.Version { return v.cluster }

// raise sets the cluster version; it never falls. Every node that is registered must have been heard in its present life.
func (s *State) raise(to fsm.Version, heard []Life) fsm.Outcome {
	switch {
	case to > fsm.NewestVersion:
		return refuse(fsm.InvalidArgument, "cluster version %s is not known, %s is the highest", to, fsm.NewestVersion)
	case to <= s.view.cluster:
		return fsm.Outcome{}
	}
	if heard != nil {
		for _, n := range s.view.nodes.Values() {
			if !slices.Contains(heard, Life{n.ID, n.Incarnation}) {
				return refuse(fsm.InvalidOperation, "node %s (%s) has come or come back meanwhile: ask again", n.ID, n.Name)
			}
		}
	}
	v := s.next()
	v.cluster = to
	s.view = v
	return fsm.Outcome{}
}

// admitProgram refuses a node whose program does not know the cluster version.
func (s *State) admitProgram(n *Node, program fsm.Version) fsm.Outcome {
	if has := s.view.cluster; has >= fsm.VersionUpgrades && program < has {
		return refuse(fsm.Unauthorized, "node %s knows cluster versions up to %s, and the cluster has %s: run release %s or "+
			"later on it", n.ID, program, has, has.Release())
	}
	return fsm.Outcome{}
}

// Needs returns the highest cluster version that a change needs, and the field that needs it. Nothing that a version
// knows is looked for. A change that is no JSON is refused by the catalog, whatever its version.
func Needs(c *fsm.Change, at fsm.Version) (needs fsm.Version, field string) {
	newer := fsm.NewerChanges(at)
	if len(newer) == 0 {
		return at, ""
	}
	var doc any
	if json.Unmarshal(c.Data, &doc) != nil {
		return at, ""
	}
	needs = at
	eachField(doc, "", func(path string) {
		if since, ok := newer[fieldPath(path)]; ok && since > needs {
			needs, field = since, path
		}
	})
	return needs, field
}

// fieldPath puts one name in the place of all paths that lead to an entity or to a rule.
func fieldPath(path string) string {
	for _, alias := range []struct{ path, name string }{
		{"create.", "descriptor."}, {"update.", "descriptor."}, {"restore.", "descriptor."}, {"putRule.rule.", "rule."},
		{"descriptor.Rules.", "rule."},
	} {
		if rest, ok := strings.CutPrefix(path, alias.path); ok {
			path = alias.name + rest
		}
	}
	return path
}

// eachField calls yield with the path of every field of a JSON document. Elements of a list are at the path of the list.
func eachField(doc any, path string, yield func(string)) {
	switch doc := doc.(type) {
	case map[string]any:
		for name, value := range doc { // order-free: the caller takes the highest version
			at := name
			if path != "" {
				at = path + "." + name
			}
			yield(at)
			eachField(value, at, yield)
		}
	case []any:
		for _, value := range doc {
			eachField(value, path, yield)
		}
	}
}
