// Package doctor says what is wrong with a cluster: each fault in a sentence, with the command that cures it. It is pure:
// a function of what the nodes say of themselves. It asks nobody, and reads no clock and no file.
//
// diagnose.go puts the rules in order. rules_cluster.go has those about the cluster, rules_node.go those about one node.
// facts.go is what they look at.
//
// Start with Diagnose.
package doctor
