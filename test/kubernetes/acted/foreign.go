package acted

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/test/conformance/languages"
	"github.com/busbar-mq/busbar/test/ledger"
)

// The load of each other language: so many clients of each kind, with a longer pause, for the machine has few processors.
const (
	foreignWorkers = 2
	foreignPause   = 100 * time.Millisecond
	foreignEnd     = 20 * time.Second // of a program that was told to end
)

// language is how the program of a language is run. dir is where its library is installed.
type language struct {
	name, runner string // the runner is a folder of test/conformance, whose run.sh installs the library
	program      string // beside this file, in clients
	// command returns the program with its interpreter; authority is a file with the certificate of the authority.
	command func(dir, program, authority string) (*exec.Cmd, error)
}

// foreignLanguages are those of the official libraries beside Go's.
var foreignLanguages = []language{
	{"javascript", "js", "load.js", func(dir, program, authority string) (*exec.Cmd, error) {
		cmd := exec.Command("node", program)
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"), "NODE_EXTRA_CA_CERTS="+authority)
		return cmd, nil
	}},
	{"python", "python", "load.py", func(dir, program, _ string) (*exec.Cmd, error) {
		cmd := exec.Command(filepath.Join(dir, "venv", "bin", "python"), "-B", program)
		cmd.Env = os.Environ()
		return cmd, nil
	}},
	{"java", "java", "Load.java", func(dir, program, authority string) (*exec.Cmd, error) {
		trust := authority + ".p12"
		if out, err := exec.Command("keytool", "-importcert", "-noprompt", "-alias", "busbar", "-file", authority,
			"-keystore", trust, "-storetype", "PKCS12", "-storepass", "changeit").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("keytool: %w: %s", err, out)
		}
		cmd := exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djavax.net.ssl.trustStore="+trust,
			"-Djavax.net.ssl.trustStorePassword=changeit", "-cp", filepath.Join(dir, "lib", "*"), program)
		cmd.Env = os.Environ()
		return cmd, nil
	}},
}

// installForeign installs the libraries of the other languages, and returns their directories by the language's name.
func installForeign(ctx context.Context) (map[string]string, error) {
	dirs := map[string]string{}
	for _, lang := range foreignLanguages {
		dir, err := languages.Installed(ctx, "../../conformance", lang.runner)
		if err != nil {
			return nil, err
		}
		dirs[lang.name] = dir
	}
	return dirs, nil
}

// foreign is a program of another language that puts load on queues of its own. It prints a line for each thing that its
// clients did. The fields are separated by tabs:
//
//	sent QUEUE BODY | unsent QUEUE BODY | received QUEUE BODY NUMBER | done QUEUE BODY | failed WHAT ERROR | note WHAT | stopped
type foreign struct {
	load    *Load
	name    string
	pulse   *pulse
	process *exec.Cmd
	orders  io.WriteCloser
	stopped chan struct{} // closed when its senders have ended, or the program has
	once    sync.Once
	ended   chan struct{}
}

// addForeign starts the program of a language, whose library is in dir.
func (l *Load) addForeign(lang language, dir string) error {
	k := l.kube
	authority := filepath.Join(k.dir, lang.name+"-ca.pem")
	if err := os.WriteFile(authority, k.Authority(), 0o644); err != nil {
		return err
	}
	program, err := filepath.Abs(filepath.Join("clients", lang.program))
	if err != nil {
		return err
	}
	f := &foreign{load: l, name: lang.name, pulse: newPulse(l.kube.began), stopped: make(chan struct{}), ended: make(chan struct{})}
	if f.process, err = lang.command(dir, program, authority); err != nil {
		return err
	}
	f.process.Env = append(f.process.Env, "SERVICEBUS_CONNECTION_STRING="+k.ConnectionString(), "LOAD_CA="+authority,
		"LOAD_NAME="+lang.name, "LOAD_PLAIN="+plainQueue+"-"+lang.name, "LOAD_ORDERED="+orderedQueue+"-"+lang.name,
		"LOAD_WORKERS="+strconv.Itoa(foreignWorkers), "LOAD_PAUSE_MS="+strconv.FormatInt(foreignPause.Milliseconds(), 10))
	f.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	beside, err := os.Create(filepath.Join(k.dir, lang.name+".log")) // Logs shows it beside those of the pods
	if err != nil {
		return err
	}
	defer beside.Close()
	f.process.Stderr = beside
	said, err1 := f.process.StdoutPipe()
	f.orders, err = f.process.StdinPipe()
	if err := errors.Join(err, err1); err != nil {
		return err
	}
	if err := f.process.Start(); err != nil {
		return err
	}
	go f.listen(said)
	l.foreign = append(l.foreign, f)
	return nil
}

// listen takes down what the program says until it has ended.
func (f *foreign) listen(said io.Reader) {
	defer close(f.ended)
	defer f.once.Do(func() { close(f.stopped) })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if err := f.hear(strings.Split(lines.Text(), "\t")); err != nil {
			f.load.Ledger.Fault("%s says %q: %v", f.name, lines.Text(), err)
		}
	}
	err := f.process.Wait()
	if err != nil || f.load.over.Err() == nil {
		f.load.Ledger.Fault("the program of %s ended: %v", f.name, err)
	}
}

// hear takes down one line.
func (f *foreign) hear(said []string) error {
	of := func(i int) string {
		if i < len(said) {
			return said[i]
		}
		return ""
	}
	l := f.load
	switch of(0) {
	case "stopped":
		f.once.Do(func() { close(f.stopped) })
		return nil
	case "note":
		l.note(f.name + ": " + of(1))
		return nil
	case "failed":
		l.note("failed " + f.name + ": " + of(1))
		l.Ledger.Fault("%s: %s failed: %s", f.name, of(1), of(2))
		l.kube.say("%s: %s failed: %s", f.name, of(1), of(2))
		return nil
	}
	m, err := ledger.Parse(of(1), []byte(of(2)))
	if err != nil {
		return err
	}
	switch of(0) {
	case "sent":
		l.Ledger.Submitted(m, ledger.Acknowledged)
	case "unsent":
		l.Ledger.Submitted(m, ledger.Unknown)
		return nil
	case "received":
		number, err := strconv.ParseInt(of(3), 10, 64)
		if err != nil {
			return err
		}
		l.Ledger.Received(m, number)
		return nil
	case "done":
		l.Ledger.Done(m)
	default:
		return errors.New("that is no word of it")
	}
	l.note(f.name + ": " + of(0))
	l.pulse.beat()
	f.pulse.beat()
	return nil
}

// stop ends the senders, and waits until they have ended.
func (f *foreign) stop() {
	_, _ = io.WriteString(f.orders, "stop\n")
	select {
	case <-f.stopped:
	case <-time.After(callLimit):
		f.load.Ledger.Fault("the senders of %s do not end", f.name)
	}
}

// end ends the program.
func (f *foreign) end() {
	_, _ = io.WriteString(f.orders, "end\n")
	select {
	case <-f.ended:
	case <-time.After(foreignEnd):
		f.load.Ledger.Fault("the program of %s does not end", f.name)
		_ = f.process.Process.Kill()
		<-f.ended
	}
}
