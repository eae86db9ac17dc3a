// Package control holds the loops that keep groups whole. They open what the catalog places on a node, and bring to
// a partition what it missed of the catalog. They give leaderships to the nodes that should have them, and repair groups
// with failed or lost replicas.
//
// A loop decides from [Facts] what is to be done next. The verbs of its [Host] and of a replica do it. A loop keeps no
// plan: after a crash the next leader decides anew. Nothing here opens stores, calls raft, or decides about messages.
//
// Start with the table in loops.go.
//
// Where things are:
//
//	running the loops     supervise.go, loops.go, host.go, config.go
//	opening               open.go, hasten.go, candidates.go
//	the catalog           register.go, place.go, electorate.go, reconcile.go
//	placement             decide.go, slow.go, grow.go, plan.go, plan_lead.go, plan_follow.go, traffic.go, retire.go
//	leaders               balance.go
//	clients               leave.go
//	failed replicas       repair.go, calm.go, rebuild.go, replace.go, quarantine.go, stuck.go
package control
