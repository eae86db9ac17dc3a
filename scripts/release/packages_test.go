package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// inPackages are the files of each package with their modes.
var inPackages = map[string]int64{
	"usr/bin/busbar": 0o755, "usr/lib/systemd/system/busbar.service": 0o644, "usr/lib/sysusers.d/busbar.conf": 0o644,
	"etc/busbar/busbar.yaml": 0o644, "usr/share/doc/busbar/copyright": 0o644,
}

// members returns the members of a Debian package, which is an archive of ar.
func members(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	b, ok := bytes.CutPrefix(b, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("no archive of ar")
	}
	all := map[string][]byte{}
	for len(b) >= 60 {
		size, err := strconv.Atoi(strings.TrimSpace(string(b[48:58])))
		if err != nil || len(b) < 60+size {
			t.Fatalf("a member of %d bytes: %v", size, err)
		}
		all[strings.TrimRight(string(b[:16]), " /")] = b[60 : 60+size]
		b = b[60+size:]
		if size%2 == 1 && len(b) > 0 {
			b = b[1:]
		}
	}
	return all
}

func TestTheDebHasWhatANodeNeeds(t *testing.T) {
	r := theRelease(t)
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		parts := members(t, r.read(t, r.file(p, ".deb")))
		control, _ := unpacked(t, gunzip(t, parts["control.tar.gz"]))
		for _, want := range []string{"Package: busbar\n", "Version: 1.2.3-1\n", "Architecture: " + p.cpu + "\n"} {
			if !strings.Contains(string(control["control"]), want) {
				t.Errorf("%s: no %q in\n%s", p.cpu, want, control["control"])
			}
		}
		if got := string(control["conffiles"]); got != "/etc/busbar/busbar.yaml\n" {
			t.Errorf("files of the operator: %q", got)
		}
		for script, file := range map[string]string{"postinst": "postinstall.sh", "prerm": "preremove.sh"} {
			if want, err := text(file); err != nil || !bytes.Equal(control[script], want) {
				t.Errorf("%s is not %s: %v", script, file, err)
			}
		}
		files, headers := unpacked(t, gunzip(t, parts["data.tar.gz"]))
		found := 0
		for name, h := range headers {
			if strings.HasSuffix(name, "/") {
				continue
			}
			found++
			if mode, ok := inPackages[name]; !ok || h.Mode&0o7777 != mode || h.Uname != "root" {
				t.Errorf("%s has mode %o and owner %s", name, h.Mode, h.Uname)
			}
		}
		if found != len(inPackages) || len(files["usr/bin/busbar"]) < 10<<20 {
			t.Errorf("%d files, want %d", found, len(inPackages))
		}
	}
}

func TestTheRPMHasWhatANodeNeeds(t *testing.T) {
	r := theRelease(t)
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		pack, err := rpmutils.ReadRpm(bytes.NewReader(r.read(t, r.file(p, ".rpm"))))
		if err != nil {
			t.Fatal(err)
		}
		name, err := pack.Header.GetNEVRA()
		if want := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.cpu]; err != nil || name.Name != "busbar" || name.Version != "1.2.3" || name.Arch != want {
			t.Errorf("the package is %v: %v", name, err)
		}
		if host, err := pack.Header.GetString(rpmutils.BUILDHOST); err != nil || host != "busbar" {
			t.Errorf("built on %q: %v", host, err)
		}
		infos, err := pack.Header.GetFiles()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, f := range infos {
			if mode, ok := inPackages[strings.TrimPrefix(f.Name(), "/")]; ok && int64(f.Mode()&0o7777) == mode && f.UserName() == "root" {
				found++
			} else {
				t.Errorf("%s has mode %o and owner %s", f.Name(), f.Mode(), f.UserName())
			}
			if config := f.Flags()&(1|1<<4) == 1|1<<4; config != (f.Name() == "/etc/busbar/busbar.yaml") {
				t.Errorf("%s: a configuration that upgrades leave alone: %v", f.Name(), config)
			}
		}
		if found != len(inPackages) {
			t.Errorf("%d files, want %d", found, len(inPackages))
		}
		if script, err := pack.Header.GetString(rpmutils.POSTIN); err != nil || !strings.Contains(script, "keys.env") {
			t.Errorf("after the installation runs %q: %v", script, err)
		}
	}
}

// installed unpacks the package of this machine below a directory.
func installed(t *testing.T, r *release) string {
	t.Helper()
	dir := t.TempDir()
	parts := members(t, r.read(t, r.file(r.native(t), ".deb")))
	files, headers := unpacked(t, gunzip(t, parts["data.tar.gz"]))
	for name, b := range files {
		if strings.HasSuffix(name, "/") {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, os.FileMode(headers[name].Mode&0o777)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The program finds no fault with the configuration of the package.
func TestTheConfigurationOfThePackageIsGood(t *testing.T) {
	dir := installed(t, theRelease(t))
	cmd := exec.Command(filepath.Join(dir, "usr/bin/busbar"), "config", "check", "--config", filepath.Join(dir, "etc/busbar/busbar.yaml"))
	cmd.Env = []string{"BUSBAR_ROOT_KEY=a key of the test, long enough"}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "the configuration is good\n" {
		t.Errorf("%s%v", out, err)
	}
}

// The unit is understood by systemd, and leaves the node little that it does not need.
func TestTheUnitIsHardened(t *testing.T) {
	r := theRelease(t)
	dir := installed(t, r)
	unit := filepath.Join(dir, "usr/lib/systemd/system/busbar.service")
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Type=notify", "User=busbar", "WatchdogSec=30", "StateDirectory=busbar", "ProtectSystem=strict", "NoNewPrivileges=true",
		"ExecStart=/usr/bin/busbar serve --config /etc/busbar/busbar.yaml", "TimeoutStartSec=infinity"} {
		if !strings.Contains(string(b), "\n"+want+"\n") {
			t.Errorf("the unit has no line %s", want)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: no systemd-analyze, so systemd has not looked at the unit")
	}
	// The program is elsewhere here than after an installation.
	here := filepath.Join(t.TempDir(), "busbar.service")
	b = bytes.ReplaceAll(b, []byte("/usr/bin/busbar"), []byte(filepath.Join(dir, "usr/bin/busbar")))
	if err := os.WriteFile(here, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", here).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd says of the unit: %v\n%s", err, out)
	}
	if out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", here).CombinedOutput(); err != nil {
		t.Errorf("the unit leaves the node too much: %v\n%s", err, out)
	}
}

// The package of Debian is installed in a copy of this system, upgraded and removed. Each step leaves what an operator expects.
func TestTheDebIsInstalled(t *testing.T) {
	r := theRelease(t)
	if !*long {
		t.Skip("the short form does not install packages")
	}
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		t.Skip("SKIPPED: it takes root and dpkg to install the package; the scripts of the package were not run")
	}
	script := `set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$2" # an overlay above an overlay is refused
mkdir "$2/upper" "$2/work" "$2/system"
mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/system" || exit 77
cp "$1" "$2/system/busbar.deb"
if chroot "$2/system" dpkg -i /busbar.deb 2>"$2/said"; then echo "a key without random bytes"; exit 1; fi
grep "no random bytes" "$2/said"
test ! -e "$2/system/etc/busbar/keys.env"
mount --bind /dev "$2/system/dev"
exec chroot "$2/system" sh -euc '
	export DEBIAN_FRONTEND=noninteractive
	dpkg -i /busbar.deb
	getent passwd busbar
	stat -c "%a %U" /etc/busbar/keys.env
	before=$(sha256sum </etc/busbar/keys.env)
	echo "# mine" >>/etc/busbar/busbar.yaml
	dpkg -i /busbar.deb
	test "$before" = "$(sha256sum </etc/busbar/keys.env)" && echo the key stays
	tail -n 1 /etc/busbar/busbar.yaml
	(. /etc/busbar/keys.env && export BUSBAR_ROOT_KEY && busbar config check --config /etc/busbar/busbar.yaml)
	dpkg -r busbar
	test ! -e /usr/bin/busbar && echo gone
'`
	cmd := exec.Command("sh", "-c", script, "sh", filepath.Join(r.out, r.file(r.native(t), ".deb")), t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 || cmd.ProcessState == nil {
		t.Skipf("SKIPPED: no copy of this system can be made, so the scripts of the package were not run: %v %s", err, out)
	}
	for _, want := range []string{"no random bytes", "busbar:x:", "600 root", "the key stays", "# mine", "the configuration is good", "gone"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, and no %q in\n%s", err, want, out)
		}
	}
}
