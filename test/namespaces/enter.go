package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// insideVariable tells a process that it has namespaces of its own.
const insideVariable = "BUSBAR_TEST_INSIDE"

// commandLimit bounds the small commands of the system that set things up.
const commandLimit = 30 * time.Second

// Run runs a small command of the system; its error has what the command printed.
func Run(argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// RunAll runs one command after the other, up to the first that fails. Their words have no blanks.
func RunAll(lines ...string) error {
	for _, line := range lines {
		if err := Run(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// Missing returns why this process cannot have namespaces of its own, nil if it can. tools are further commands that
// must be on the path.
func Missing(tools ...string) error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	for _, tool := range append([]string{"ip", "nsenter", "mount", "umount"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	// A container's root may be root by name only: try what a test does.
	cmd := exec.Command("sh", "-c",
		"mount --make-rprivate / && mount -t tmpfs none /run && ip link add br0 type bridge && ip netns add n0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("namespaces: %w: %s", err, out)
	}
	return nil
}

// Inside reports whether this process has namespaces of its own.
func Inside() bool { return os.Getenv(insideVariable) != "" }

// Enter runs this command line again in a network and a mount namespace of its own and returns its exit code. further
// are more namespaces, as flags of clone(2). The kernel sends the signal end to that process if this one dies.
func Enter(further uintptr, end syscall.Signal) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "namespaces:", err)
		return 1
	}
	// prctl(2): the signal comes when the thread ends that made the process, so the thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | further, Pdeathsig: end}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "namespaces:", err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
