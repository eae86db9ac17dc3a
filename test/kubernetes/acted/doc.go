// Package acted plays Kubernetes for real nodes in network namespaces. It has a StatefulSet controller, a kubelet,
// Services with their DNS, a scheduler and the drain of machines. Every number of the play is read from the manifests
// or from the rendered chart. Clients reach the nodes as in a cluster, by the name of the Service.
//
// It plays what decides about nodes and connections. It has no API server, image, resource limit or network policy.
//
// # Where things are, from the top down
//
//   - kube.go: the cluster, what is applied to it, and its loop; verbs.go: what people do with kubectl
//   - controller.go: what the StatefulSet controller does next, a pure function
//   - machines.go: the scheduler, the drain of a machine, the disruption budget
//   - kubelet.go: the life of a pod; prober.go: its probes; backoff.go: pauses before a restart
//   - container.go: the file system, the environment and the process of a pod
//   - services.go: which pods a Service has; balancer.go: its address; resolver.go: its names
//   - load.go: clients of the Go SDK, and what they count
//   - inside.go: the namespaces in which all of it happens
package acted
