package acted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/kubernetes/manifests"
)

// runtime is the container runtime. It makes the root file system of the image, which has nothing but the binary, and
// mounts the volumes. The process gets the user of the manifest and no other environment. The mounts are the pod's own.
const runtime = `set -e
root=$1 binary=$2; shift 2
mount --bind "$root" "$root"
mount --bind "$binary" "$root/busbar"
while [ "$1" != -- ]; do
	mount --bind "$1" "$root$2"
	[ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
	shift 3
done
shift
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec env -i "$@"`

// furnish gives a pod its container, which is not started yet.
func (p *pod) furnish() error {
	volumes, err := p.volumes()
	if err != nil {
		return err
	}
	root := filepath.Join(p.kube.dir, "roots", p.name)
	mounts := []string{filepath.Join(p.kube.dir, "resolv.conf"), "/etc/resolv.conf", "ro", "/etc/hosts", "/etc/hosts", "ro"}
	for _, m := range p.container.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		mounts = append(mounts, volumes[m.Name], m.MountPath, mode)
		if err := os.MkdirAll(filepath.Join(root, m.MountPath), 0o755); err != nil {
			return err
		}
	}
	if err := skeleton(root); err != nil {
		return err
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		return err
	}
	sc := p.set.Pod().SecurityContext
	program := append([]string{"ip", "netns", "exec", p.name, "sh", "-c", runtime, "sh", root, p.program()}, mounts...)
	program = append(append(program, "--"), p.environment()...)
	program = append(program, chroot, fmt.Sprintf("--userspec=%d:%d", *sc.RunAsUser, *sc.RunAsGroup),
		fmt.Sprintf("--groups=%d", *sc.FSGroup), root, "/busbar")
	ops, err := portOf(p.container, "operations")
	if err != nil {
		return err
	}
	// Dir has no ports.json to be removed: the ports are those of the manifest.
	p.node = &cluster.Node{ID: p.name, Dir: root, Ops: p.ip + ":" + strconv.Itoa(int(ops)), CutOff: true, Watch: p,
		LogFile: filepath.Join(p.kube.dir, p.name+".log")}
	p.node.Command(program, p.container.Args...)
	return nil
}

// program is the one in the image of the container.
func (p *pod) program() string {
	if other, ok := p.kube.Images[p.container.Image]; ok {
		return other
	}
	return p.kube.binary
}

// skeleton makes what a container has of the runtime: places to mount on.
func skeleton(root string) error {
	for _, dir := range []string{"proc", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{"busbar", "etc/resolv.conf", "etc/hosts"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment is what the process gets: the runtime's own and the manifest's.
func (p *pod) environment() []string {
	fields := map[string]string{"metadata.name": p.name, "status.podIP": p.ip}
	env := manifests.Environment(p.container, fields, func(from *core.SecretKeySelector) string {
		return string(p.kube.secrets[from.Name][from.Key])
	})
	return append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + p.name}, env...)
}

// volumes makes the volumes of a pod and returns their directories by name.
func (p *pod) volumes() (map[string]string, error) {
	dirs := map[string]string{}
	for _, claim := range p.set.Stateful.Spec.VolumeClaimTemplates {
		dirs[claim.Name] = p.kube.claim(claim.Name, p.name)
		if err := p.own(dirs[claim.Name]); err != nil {
			return nil, err
		}
	}
	for _, v := range p.set.Pod().Volumes {
		dir := filepath.Join(p.kube.dir, "volumes", p.name, v.Name)
		files, mode := map[string][]byte{}, os.FileMode(0o644)
		switch {
		case v.ConfigMap != nil && v.ConfigMap.Name == p.set.Config.Name:
			for name, text := range p.set.Config.Data {
				files[name] = []byte(text)
			}
		case v.Secret != nil:
			files = p.kube.secrets[v.Secret.SecretName]
			if v.Secret.DefaultMode != nil {
				mode = os.FileMode(*v.Secret.DefaultMode)
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: volume %s has nothing to mount", p.name, v.Name)
		}
		dirs[v.Name] = dir
		if err := p.project(dir, files, mode); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// own gives a volume to the group of the pod, which is what fsGroup means.
func (p *pod) own(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chown(dir, 0, int(*p.set.Pod().SecurityContext.FSGroup)), os.Chmod(dir, 0o775|os.ModeSetgid))
}

// project writes a volume that is made of files.
func (p *pod) project(dir string, files map[string][]byte, mode os.FileMode) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if err := errors.Join(os.Chown(file, 0, int(*p.set.Pod().SecurityContext.FSGroup)), os.Chmod(file, mode)); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a command in the network and with the environment of a pod, as kubectl exec does, and returns what it printed.
func (p *pod) exec(ctx context.Context, env []string, command ...string) (string, error) {
	if len(command) == 0 || command[0] != "/busbar" {
		return "", fmt.Errorf("%s: %q: the image has no other program than /busbar", p.name, command)
	}
	argv := append([]string{"netns", "exec", p.name, "env", "-i"}, append(p.environment(), env...)...)
	argv = append(append(argv, p.program()), command[1:]...)
	out, err := exec.CommandContext(ctx, "ip", argv...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", p.name, strings.Join(command, " "), err)
	}
	return string(out), err
}
