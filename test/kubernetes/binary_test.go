package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"debug/elf"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("BUSBAR_BINARY")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin", "busbar")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	return bin
}

// render returns the environment as the kubelet would make it, with the volumes below dir.
func (s *set) render(t *testing.T, dir string, secrets map[string]string) []string {
	t.Helper()
	fields := map[string]string{"metadata.name": "busbar-0", "status.podIP": "10.1.2.3"}
	env := manifests.Environment(s.container(t), fields, func(from *core.SecretKeySelector) string {
		if _, ok := s.Secrets[from.Name].StringData[from.Key]; !ok && (from.Optional == nil || !*from.Optional) {
			t.Errorf("secret %s has no key %s", from.Name, from.Key)
		}
		return secrets[from.Key]
	})
	for i, e := range env {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(value, "/etc/") {
			env[i] = name + "=" + filepath.Join(dir, filepath.Base(value))
		}
	}
	certify(t, filepath.Join(dir, "tls"))
	for name, text := range s.Config.Data {
		text = strings.ReplaceAll(text, "/etc/busbar/tls/", filepath.Join(dir, "tls")+"/")
		text = strings.ReplaceAll(text, "/etc/busbar/config/", dir+"/")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return env
}

// certify writes what the secret of the certificate holds: one that is its own authority.
func certify(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"busbar.busbar.svc"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"ca.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConfigCheck gives the binary what a pod would give it.
func TestConfigCheck(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	good := map[string]string{"root-key": key, "gossip-key": key}
	cases := []struct {
		name    string
		secrets map[string]string
		change  func(string) string
		want    string // of the complaint; none if it is good
	}{
		{"the manifests as they are", good, nil, ""},
		{"the example's empty keys do not start a node", map[string]string{}, nil, "no access key"},
		{"a gossip key of another length is refused",
			map[string]string{"root-key": key, "gossip-key": "c2hvcnQ="}, nil, "gossip-key"},
		{"an unknown setting is refused", good,
			func(s string) string { return s + "log-fromat: json\n" }, "log-fromat"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := load(t)
			if c.change != nil {
				s.Config.Data["busbar.yaml"] = c.change(s.Config.Data["busbar.yaml"])
			}
			cmd := exec.Command(binary(t), "config", "check")
			cmd.Env = s.render(t, t.TempDir(), c.secrets)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v: %s", err, out)
			case c.want != "" && (!errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.want)):
				t.Errorf("got %v: %s, want exit code 2 and %q", err, out, c.want)
			}
		})
	}
}

// TestEnvironmentIsKnown checks that every BUSBAR_ variable is a setting: the binary ignores others,
// so a slip of the pen would silently mean nothing.
func TestEnvironmentIsKnown(t *testing.T) {
	help, err := exec.Command(binary(t), "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Secrets are never flags.
	known := map[string]bool{"BUSBAR_ROOT_KEY": true, "BUSBAR_ROOT_KEY_SECONDARY": true, "BUSBAR_GOSSIP_KEY": true}
	for _, m := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(string(help), -1) {
		known["BUSBAR_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))] = true
	}
	if len(known) < 20 {
		t.Fatalf("only %d settings found in the help", len(known))
	}
	for _, e := range load(t).container(t).Env {
		if strings.HasPrefix(e.Name, "BUSBAR_") && !known[e.Name] {
			t.Errorf("%s is no setting", e.Name)
		}
	}
}

// TestBinaryNeedsNothing checks that the binary runs in an image that holds nothing else.
func TestBinaryNeedsNothing(t *testing.T) {
	f, err := elf.Open(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it asks for a dynamic loader")
		}
	}
	if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
		t.Errorf("it needs %v", libs)
	}
}

// TestDockerfile checks what no build is needed for: the base, the user, the command.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(directory, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "" && word != "#" {
			got[word] = append(got[word], rest)
		}
	}
	user := "65532:65532"
	for word, want := range map[string]string{"FROM": "scratch", "USER": user, "COPY": "busbar /busbar",
		"ENTRYPOINT": `["/busbar"]`, "CMD": `["serve"]`} {
		if len(got[word]) != 1 || got[word][0] != want {
			t.Errorf("%s is %q, want %q", word, got[word], want)
		}
	}
	if len(got["RUN"]) > 0 {
		t.Error("RUN needs a shell, which the image does not have")
	}
	s := load(t)
	if uid := *s.Pod().SecurityContext.RunAsUser; uid != 65532 {
		t.Errorf("the pod runs as %d, the image as %s", uid, user)
	}
	if args := s.container(t).Args; len(args) != 1 || args[0] != "serve" {
		t.Errorf("the pod runs %q", args)
	}
}
