// Package manifests decodes what scripts/kubernetes declares, strictly, into the types of the Kubernetes API. It renders
// the chart by Helm's own library. Package kubernetes judges the result, and package acted plays it.
//
// Start with Load and Render.
package manifests
