package cluster

const (
	maxJoinAddrs      = 64
	maxBootstrapNodes = 32
)
