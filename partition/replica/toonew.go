package replica

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// TooNew returns why a command must not get into a log yet: a node that does not know it may be in the cluster. The error
// is a *fsm.VersionError. A node asks before it sends a command to a leader, which may be too old to read it. A leader
// asks before it proposes one.
func TooNew(c fsm.Command, at fsm.Version) error {
	if at >= fsm.NewestVersion {
		return nil
	}
	needs, what := fsm.NeedsVersion(c, at)
	if change, ok := c.(*fsm.Change); ok {
		var field string
		if needs, field = catalog.Needs(change, at); field != "" {
			what = "a change of the catalog with " + field
		}
	}
	if needs <= at {
		return nil
	}
	return &fsm.VersionError{What: what, Needs: needs, Has: at}
}
