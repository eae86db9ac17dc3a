package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Set is everything that scripts/kubernetes declares.
type Set struct {
	Stateful  apps.StatefulSet
	Services  map[string]core.Service
	Config    core.ConfigMap
	Secrets   map[string]core.Secret
	Budget    policy.PodDisruptionBudget
	Isolation networking.NetworkPolicy

	// These are declared by the chart alone.
	Certificate certmanager.Certificate
	Monitor     monitoring.ServiceMonitor
	Rules       monitoring.PrometheusRule
	Dashboards  core.ConfigMap
	Check       batch.Job
}

// New returns a set that declares nothing.
func New() *Set {
	return &Set{Services: map[string]core.Service{}, Secrets: map[string]core.Secret{}}
}

// Load decodes the manifests in a directory.
func Load(dir string) (*Set, error) {
	s := New()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml*"))
	if err != nil {
		return nil, err
	}
	if len(files) < 6 {
		return nil, fmt.Errorf("found %d manifests in %s, want six or more", len(files), dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := s.DecodeFile(text); err != nil {
			return nil, fmt.Errorf("%s, %w", filepath.Base(file), err)
		}
	}
	return s, nil
}

// DecodeFile decodes all documents of a file.
func (s *Set) DecodeFile(text []byte) error {
	for i, doc := range bytes.Split(text, []byte("\n---\n")) {
		if err := s.Decode(doc); err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	return nil
}

// Decode decodes one document into the type of its kind and refuses what that type does not have.
func (s *Set) Decode(doc []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	var service core.Service
	var secret core.Secret
	var config core.ConfigMap
	into, ok := map[string]any{
		"apps/v1 StatefulSet":                &s.Stateful,
		"v1 Service":                         &service,
		"v1 ConfigMap":                       &config,
		"v1 Secret":                          &secret,
		"policy/v1 PodDisruptionBudget":      &s.Budget,
		"networking.k8s.io/v1 NetworkPolicy": &s.Isolation,

		"cert-manager.io/v1 Certificate":          &s.Certificate,
		"monitoring.coreos.com/v1 ServiceMonitor": &s.Monitor,
		"monitoring.coreos.com/v1 PrometheusRule": &s.Rules,
		"batch/v1 Job": &s.Check,
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
		s.Services[service.Name] = service
	case "ConfigMap":
		if strings.HasSuffix(config.Name, "-dashboards") {
			s.Dashboards = config
		} else {
			s.Config = config
		}
	case "Secret":
		s.Secrets[secret.Name] = secret
	}
	return nil
}

// Pod is what a pod of the set is made from.
func (s *Set) Pod() *core.PodSpec { return &s.Stateful.Spec.Template.Spec }

// Environment returns the variables of a container as the kubelet makes them. fields has the pod's own, such as
// status.podIP; secret gives the value of a key, "" if the key is not there.
func Environment(c *core.Container, fields map[string]string, secret func(from *core.SecretKeySelector) string) []string {
	var env []string
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value = fields[from.FieldRef.FieldPath]
		case from.SecretKeyRef != nil:
			value = secret(from.SecretKeyRef)
			if optional := from.SecretKeyRef.Optional; value == "" && optional != nil && *optional {
				continue
			}
		}
		env = append(env, e.Name+"="+value)
	}
	return env
}
