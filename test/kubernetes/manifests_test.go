package kubernetes

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

const directory = "../../scripts/kubernetes"

// set is what scripts/kubernetes or the chart declares.
type set struct{ *manifests.Set }

func load(t *testing.T) *set {
	t.Helper()
	s, err := manifests.Load(directory)
	if err != nil {
		t.Fatal(err)
	}
	return &set{s}
}

func TestDecodingIsStrict(t *testing.T) {
	cases := []struct{ name, doc, want string }{
		{"a field that the API does not have",
			"apiVersion: v1\nkind: Service\nspec: {clusterIp: None}\n", "unknown field"},
		{"a key twice", "apiVersion: v1\nkind: ConfigMap\ndata: {a: x, a: y}\n", "already set"},
		{"a value of another type",
			"apiVersion: apps/v1\nkind: StatefulSet\nspec: {replicas: three}\n", "cannot unmarshal"},
		{"a kind of another version", "apiVersion: v1beta1\nkind: Service\n", "no type"},
	}
	for _, c := range cases {
		t.Run(c.name+" is refused", func(t *testing.T) {
			err := manifests.New().Decode([]byte(c.doc))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func (s *set) container(t *testing.T) *core.Container {
	t.Helper()
	if n := len(s.Pod().Containers); n != 1 {
		t.Fatalf("%d containers, want one", n)
	}
	return &s.Pod().Containers[0]
}
