// Command chaos runs a cluster of real processes under the official Go SDK. Meanwhile it breaks what the cluster
// stands on: processes, the network between them, their disks. It then judges what the clients saw with the checkers
// of test/check.
//
// It works on nothing but what it made itself. As root it moves into a network and a mount namespace of its own.
// Every node gets a namespace and an ext4 on a loop device. Each fault is registered with a supervisor process first,
// which mends it when its time is over or when this process dies. Without root it works on loopback and says which
// faults it left out.
//
// Start with run in run.go, then nemesis.go; schedule.go says when what happens.
package main
