package replica

import "github.com/hashicorp/raft"

// foundingTerm is the term that raft.BootstrapCluster writes. The first election has term 2.
const foundingTerm = 1

// keyTerm is the key of raft's current term.
const keyTerm = "CurrentTerm"

// unfounded is the stable store that raft.BootstrapCluster is given. Raft writes the term first and entry 1 after it, and
// founds no group that has a term. A founder that stops between the two writes would never have a configuration. So the
// founding term counts as none, and the next start writes both again; raft looks at the log and the snapshots itself.
//
// A later term does count. A replica that has one may have acknowledged entries or voted, and its log is lost.
type unfounded struct{ raft.StableStore }

// GetUint64 implements raft.StableStore.
func (u unfounded) GetUint64(key []byte) (uint64, error) {
	v, err := u.StableStore.GetUint64(key)
	if err == nil && v == foundingTerm && string(key) == keyTerm {
		return 0, nil
	}
	return v, err
}
