package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"go.yaml.in/yaml/v3"
)

// images unpacks the layout and returns the index of each tag.
func images(t *testing.T, r *release) map[string]v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	files, _ := unpacked(t, bytes.NewReader(r.read(t, "busbar_1.2.3_image.tar")))
	for name, b := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.ImageIndex{}
	for _, m := range manifest.Manifests {
		tag := m.Annotations["org.opencontainers.image.ref.name"]
		if got := m.Annotations["io.containerd.image.name"]; got != "busbar:"+tag {
			t.Errorf("the image is loaded as %q", got)
		}
		if out[tag], err = all.ImageIndex(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// native returns the image of this machine.
func native(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH {
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return img
		}
	}
	t.Fatal("no image of this machine")
	return nil
}

func TestTheImageIsALayout(t *testing.T) {
	r := theRelease(t)
	all := images(t, r)
	if len(all) != 2 || all["1.2.3"] == nil || all["1.2.3-emulator"] == nil {
		t.Fatalf("the layout has %v", all)
	}
	for tag, want := range map[string]struct{ cmd, health []string }{
		"1.2.3":          {[]string{"serve", "--data-dir", "/data"}, []string{"CMD", "/busbar", "healthcheck"}},
		"1.2.3-emulator": {[]string{"emulator"}, []string{"CMD", "/busbar", "healthcheck", "--ready"}},
	} {
		manifest, err := all[tag].IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, m := range manifest.Manifests {
			platforms = append(platforms, m.Platform.String())
			img, err := all[tag].Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			file, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			c := file.Config
			if !slices.Equal(c.Cmd, want.cmd) || !slices.Equal(c.Entrypoint, []string{"/busbar"}) || c.Healthcheck == nil || !slices.Equal(c.Healthcheck.Test, want.health) ||
				c.User != "65532:65532" || len(c.Env) > 0 || c.Labels["org.opencontainers.image.version"] != "1.2.3" || file.Architecture != m.Platform.Architecture {
				t.Errorf("%s for %s: %+v", tag, m.Platform, c)
			}
		}
		var linux []string
		for _, p := range r.programs {
			if p.system == "linux" {
				linux = append(linux, "linux/"+p.cpu)
			}
		}
		if !slices.Equal(platforms, linux) {
			t.Errorf("%s is for %q, want %q", tag, platforms, linux)
		}
	}
}

// rootOf unpacks the file system of an image as a container would see it.
func rootOf(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stream := mutate.Extract(img)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err == nil {
			err = os.Lchown(path, h.Uid, h.Gid)
		}
		if err == nil { // Go's Chmod has bits of its own for what is above 0777
			err = syscall.Chmod(path, uint32(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// container runs programs in the file system of an image as a user of its own.
type container struct {
	t    *testing.T
	root string
	user uint32
	out  *lockedBuffer
	ops  string
	amqp string
}

func (c *container) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Path, cmd.Err = args[0], nil
	cmd.Dir, cmd.Env = "/", append([]string{}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: c.user, Gid: c.user}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start runs what the image runs, with more arguments, and returns when a line of the output has the text and clients are let in.
func start(t *testing.T, img v1.Image, user uint32, prepare func(root string), env []string, up string, more ...string) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: it takes root to change the root directory, so the image was not started")
	}
	c := &container{t: t, root: rootOf(t, img), user: user, out: newLockedBuffer(up)}
	if prepare != nil {
		prepare(c.root)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(file.Config.Entrypoint, file.Config.Cmd, []string{"--ports-file", "/tmp/ports.json", "--amqp-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, more)
	cmd := c.command(append(file.Config.Env, env...), args...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the container ended with %v: %s", err, c.out)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("the container does not end: %s", c.out)
		}
	})
	select {
	case <-c.out.seen:
	case err := <-ended:
		ended <- err
		t.Fatalf("the container ended with %v: %s", err, c.out)
	case <-time.After(2 * time.Minute):
		t.Fatalf("no line %q: %s", up, c.out)
	}
	b, err := os.ReadFile(filepath.Join(c.root, "tmp", "ports.json"))
	for over := time.Now().Add(2 * time.Minute); errors.Is(err, fs.ErrNotExist) && time.Now().Before(over); {
		time.Sleep(20 * time.Millisecond)
		b, err = os.ReadFile(filepath.Join(c.root, "tmp", "ports.json"))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, c.out)
	}
	var ports struct{ AMQP, Ops int }
	if err := json.Unmarshal(b, &ports); err != nil || ports.AMQP == 0 || ports.Ops == 0 {
		t.Fatalf("ports %s: %v", b, err)
	}
	c.ops, c.amqp = fmt.Sprintf("127.0.0.1:%d", ports.Ops), fmt.Sprintf("127.0.0.1:%d", ports.AMQP)
	return c
}

// run runs a command of the program beside the node.
func (c *container) run(key string, args ...string) string {
	c.t.Helper()
	env := []string{"SERVICEBUS_CONNECTION_STRING=Endpoint=sb://" + c.amqp + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"}
	out, err := c.command(env, append([]string{"/busbar"}, args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("busbar %q: %v: %s", args, err, out)
	}
	return string(out)
}

// officialFile has the shape of the file that the official emulator comes with.
const officialFile = `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",
  "Queues": [{"Name": "queue.1", "Properties": {"DeadLetteringOnMessageExpiration": false, "DefaultMessageTimeToLive": "PT1H",
    "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardDeadLetteredMessagesTo": "", "ForwardTo": "", "LockDuration": "PT1M",
    "MaxDeliveryCount": 3, "RequiresDuplicateDetection": false, "RequiresSession": false}}],
  "Topics": [{"Name": "topic.1", "Properties": {"DefaultMessageTimeToLive": "PT1H", "DuplicateDetectionHistoryTimeWindow": "PT20S", "RequiresDuplicateDetection": false},
    "Subscriptions": [{"Name": "subscription.1", "Properties": {"DefaultMessageTimeToLive": "PT1H", "LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresSession": false},
      "Rules": [{"Name": "by-subject", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Label": "subject1"}}}]}]}]}],
  "Logging": {"Type": "File"}}}`

// The emulator runs as a user that the image does not know, on a file system that has nothing but the image. The emulator makes
// the entities of the official emulator's file, and messages go through.
func TestTheEmulatorOfTheImageStarts(t *testing.T) {
	img := native(t, images(t, theRelease(t))["1.2.3-emulator"])
	c := start(t, img, 54321, func(root string) {
		path := filepath.Join(root, "ServiceBus_Emulator", "ConfigFiles", "Config.json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(officialFile), 0o644); err != nil {
			t.Fatal(err)
		}
	}, []string{"ACCEPT_EULA=Y", "SQL_SERVER=sqledge", "MSSQL_SA_PASSWORD=unused"}, "Emulator Service is Successfully Up!")
	response, err := http.Get("http://" + c.ops + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(b), `"status":"healthy"`) {
		t.Errorf("/health: %d %s %v", response.StatusCode, b, err)
	}
	if out := c.run("SAS_KEY_VALUE", "healthcheck", "--ready", "--ops", c.ops); out != "ready\n" {
		t.Errorf("the probe of the image says %q", out)
	}
	c.run("SAS_KEY_VALUE", "send", "queue.1", "through the container")
	if out := c.run("SAS_KEY_VALUE", "receive", "queue.1"); !strings.Contains(out, "through the container") {
		t.Errorf("received %q", out)
	}
	if out := c.run("SAS_KEY_VALUE", "subscription", "list", "topic.1"); !strings.Contains(out, "subscription.1") {
		t.Errorf("the topic has %q", out)
	}
}

// variables returns what the compose file gives to each service, with keys in the place of those of the operator.
func variables(t *testing.T, r *release, file string) map[string][]string {
	t.Helper()
	var compose struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(r.read(t, file), &compose); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for name, s := range compose.Services {
		if !strings.HasPrefix(s.Image, "busbar:1.2.3") {
			t.Errorf("%s: %s runs %q", file, name, s.Image)
		}
		out[name] = []string{}
		for key, value := range s.Environment {
			if strings.HasPrefix(value, "${BUSBAR_") {
				value = map[string]string{"BUSBAR_ROOT_KEY": testKey, "BUSBAR_GOSSIP_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}[key]
			}
			out[name] = append(out[name], key+"="+value)
		}
	}
	return out
}

const testKey = "bm8gc2VjcmV0LCBmb3IgdGVzdHMgYWxvbmUgLi4uLi4="

// The program finds no fault with what the compose files give to nodes.
func TestComposeFilesAreGood(t *testing.T) {
	r := theRelease(t)
	program := filepath.Join(installed(t, r), "usr/bin/busbar")
	for file, nodes := range map[string]int{"compose-one.yaml": 1, "compose-three.yaml": 3, "compose-emulator.yaml": 1} {
		all := variables(t, r, file)
		if len(all) != nodes {
			t.Errorf("%s has %d services", file, len(all))
		}
		if file == "compose-emulator.yaml" {
			continue
		}
		for name, env := range all {
			cmd := exec.Command(program, "config", "check", "--data-dir", "/data")
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "the configuration is good\n" {
				t.Errorf("%s: %s: %v %s", file, name, err, out)
			}
		}
	}
}

// The server runs as the user of the image with the variables of the compose file, and keeps its data in /data.
func TestTheServerOfTheImageStarts(t *testing.T) {
	r := theRelease(t)
	env := variables(t, r, "compose-one.yaml")["busbar"]
	img := native(t, images(t, r)["1.2.3"])
	c := start(t, img, imageUser, nil, env, `"leading"`, "--peer-listen", "127.0.0.1:0", "--gossip-listen", "127.0.0.1:0")
	for over := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + c.ops + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(over) {
			t.Fatalf("the node is not ready: %v %s", err, c.out)
		}
	}
	c.run(testKey, "queue", "create", "orders")
	c.run(testKey, "send", "orders", "kept")
	if out := c.run(testKey, "receive", "orders"); !strings.Contains(out, "kept") {
		t.Errorf("received %q", out)
	}
	if entries, err := os.ReadDir(filepath.Join(c.root, "data")); err != nil || len(entries) == 0 {
		t.Errorf("/data has %v: %v", entries, err)
	}
}
