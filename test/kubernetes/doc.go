// Package kubernetes judges the manifests in scripts/kubernetes without a cluster. They are decoded strictly into the
// types of the Kubernetes API and compared with one another. Their configuration is given to the binary itself.
//
// It is a module of its own, so that the broker does not depend on the API's types. It needs
// bin/busbar (make build).
package kubernetes
