package busbartest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// process is a program that runs. The program ends with its standard input, and so with the test process, even if that one is
// killed.
type process struct {
	command   *exec.Cmd
	input     io.Closer
	log       book
	ended     chan struct{}
	portsFile string // of a program
	container string // the name of a container, or ""
}

// begin starts the program, or a container if there is no program.
func begin(program, dir, entities string) (*process, error) {
	p := &process{ended: make(chan struct{})}
	if program == "" {
		program = os.Getenv("BUSBAR_BINARY")
	}
	if program == "" {
		program, _ = exec.LookPath("busbar")
	}
	image := os.Getenv("BUSBAR_IMAGE")
	switch {
	case program != "":
		p.portsFile = filepath.Join(dir, "ports.json")
		p.command = exec.Command(program, "serve", "--dev", "--ephemeral", "--stop-with-stdin", "--log-format", "text", "--ports-file", p.portsFile,
			"--amqp-listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
		if entities != "" {
			p.command.Args = append(p.command.Args, "--entities", entities)
		}
	case image != "":
		p.container = "busbartest-" + strings.ToLower(rand.Text())
		args := []string{"run", "--rm", "-i", "--name", p.container, "-p", "127.0.0.1::5672", "-p", "127.0.0.1::5300"}
		if entities != "" {
			args = append(args, "-v", entities+":/ServiceBus_Emulator/ConfigFiles/Config.json:ro")
		}
		p.command = exec.Command("docker", append(args, image, "emulator", "--stop-with-stdin")...)
	default:
		return nil, errors.New("busbar is not on the path: set BUSBAR_BINARY to the program, or BUSBAR_IMAGE to an image")
	}
	// Settings of a node on this machine are none of the test's.
	p.command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BUSBAR_") && !strings.HasPrefix(v, "BUSBAR_STANDIN=")
	})
	p.command.Stdout, p.command.Stderr = &p.log, &p.log
	input, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = input
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.command.Wait(); close(p.ended) }()
	return p, nil
}

// addresses waits for the addresses of AMQP and of operations.
func (p *process) addresses(ctx context.Context) (amqp, ops string, err error) {
	err = p.await(ctx, "the broker does not listen yet", func() bool {
		if p.container != "" {
			amqp, ops = p.published(ctx, "5672/tcp"), p.published(ctx, "5300/tcp")
			return amqp != "" && ops != ""
		}
		var ports struct{ AMQP, Ops int }
		text, err := os.ReadFile(p.portsFile)
		if err != nil || json.Unmarshal(text, &ports) != nil {
			return false
		}
		amqp, ops = fmt.Sprintf("localhost:%d", ports.AMQP), fmt.Sprintf("localhost:%d", ports.Ops)
		return true
	})
	return amqp, ops, err
}

// published returns where a port of the container is on this machine, or "".
func (p *process) published(ctx context.Context, port string) string {
	out, err := exec.CommandContext(ctx, "docker", "port", p.container, port).Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}

// await waits until something is so. The process must live meanwhile.
func (p *process) await(ctx context.Context, not string, is func() bool) error {
	for !is() {
		select {
		case <-p.ended:
			return fmt.Errorf("the broker ended with code %d", p.command.ProcessState.ExitCode())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", not, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the process in good order, or else without.
func (p *process) stop() error {
	_ = p.input.Close() // closed before, if stop was called before
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopLimit):
	}
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return fmt.Errorf("busbartest: the broker did not stop within %s, and was killed", stopLimit)
}

// book keeps what a process prints.
type book struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.String()
}
