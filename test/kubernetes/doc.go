// Package kubernetes judges the manifests in scripts/kubernetes without a cluster. They are decoded strictly into the
// types of the Kubernetes API and compared with one another. Their configuration is given to the binary itself. The chart is
// rendered by Helm's own library, and its objects are compared with the manifests.
//
// Package manifests decodes and renders; package acted plays the result. It needs bin/busbar (make build).
package kubernetes
