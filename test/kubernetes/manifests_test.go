package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const manifests = "../../scripts/kubernetes"

// set is everything that scripts/kubernetes declares.
type set struct {
	stateful  apps.StatefulSet
	services  map[string]core.Service
	config    core.ConfigMap
	secrets   map[string]core.Secret
	budget    policy.PodDisruptionBudget
	isolation networking.NetworkPolicy

	// What only the chart declares.
	certificate certmanager.Certificate
	monitor     monitoring.ServiceMonitor
}

func newSet() *set {
	return &set{services: map[string]core.Service{}, secrets: map[string]core.Secret{}}
}

// decodeFile reads all documents of a file.
func (s *set) decodeFile(text []byte) error {
	for i, doc := range bytes.Split(text, []byte("\n---\n")) {
		if err := s.decode(doc); err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	return nil
}

// decode reads one document into the type of its kind and refuses what that type does not have.
func (s *set) decode(doc []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	var service core.Service
	var secret core.Secret
	into, ok := map[string]any{
		"apps/v1 StatefulSet":                &s.stateful,
		"v1 Service":                         &service,
		"v1 ConfigMap":                       &s.config,
		"v1 Secret":                          &secret,
		"policy/v1 PodDisruptionBudget":      &s.budget,
		"networking.k8s.io/v1 NetworkPolicy": &s.isolation,

		"cert-manager.io/v1 Certificate":          &s.certificate,
		"monitoring.coreos.com/v1 ServiceMonitor": &s.monitor,
	}[head.APIVersion+" "+head.Kind]
	if !ok {
		return fmt.Errorf("no type for %s %s", head.APIVersion, head.Kind)
	}
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	// Unlike encoding/json this one does not look past the case of a key, as the API server does not.
	unknown, err := json.UnmarshalStrict(text, into)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return err
	}
	switch head.Kind {
	case "Service":
		s.services[service.Name] = service
	case "Secret":
		s.secrets[secret.Name] = secret
	}
	return nil
}

func load(t *testing.T) *set {
	t.Helper()
	s := newSet()
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml*"))
	if err != nil || len(files) < 6 {
		t.Fatalf("found %d manifests: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.decodeFile(text); err != nil {
			t.Fatalf("%s, %v", filepath.Base(file), err)
		}
	}
	return s
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
			s := newSet()
			err := s.decode([]byte(c.doc))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func (s *set) pod() *core.PodSpec { return &s.stateful.Spec.Template.Spec }

func (s *set) container(t *testing.T) *core.Container {
	t.Helper()
	if n := len(s.pod().Containers); n != 1 {
		t.Fatalf("%d containers, want one", n)
	}
	return &s.pod().Containers[0]
}
