package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/busbar-mq/busbar/test/namespaces"
)

// diskBytes is the size of a node's disk. Sparse: it takes what is used.
const diskBytes = 2 << 30

// disk is an ext4 on a loop device over a file.
type disk struct {
	image, mount string
	sup          *supervisor
	forget       func() error
}

// noDisks returns why there can be no disks, nil if there can.
func noDisks() error {
	for _, tool := range []string{"mkfs.ext4", "mount", "umount", "fsfreeze"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return err
	}
	return nil
}

func newDisk(sup *supervisor, image, mount string) (*disk, error) {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644) // another run may use it
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskBytes), f.Close()); err != nil {
		return nil, err
	}
	// No reserve for root, or a full disk would not be full for a node that runs as root.
	if err := namespaces.Run("mkfs.ext4", "-q", "-F", "-m", "0", image); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(mount, 0o755); err != nil {
		return nil, err
	}
	d := &disk{image: image, mount: mount, sup: sup}
	d.forget, err = sup.register(undo{Argv: []string{"umount", "-l", mount}})
	if err != nil {
		return nil, err
	}
	return d, d.attach()
}

func (d *disk) attach() error { return namespaces.Run("mount", "-o", "loop", d.image, d.mount) }

// detach waits for the last user to be gone.
func (d *disk) detach() (err error) {
	for range 100 {
		if err = namespaces.Run("umount", d.mount); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// fill takes all room that is left, and whatever is freed later, as somebody else's growing file does.
// It returns how to give it back.
func (d *disk) fill(within time.Duration) (giveBack func() error, err error) {
	ballast := filepath.Join(d.mount, "ballast")
	remove, err := d.sup.register(undo{Argv: []string{"rm", "-f", ballast}, Within: within.Seconds()})
	if err != nil {
		return nil, err
	}
	f, err := os.Create(ballast)
	if err != nil {
		return remove, err
	}
	if err := takeRoom(f); err != nil {
		return remove, errors.Join(err, f.Close())
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- f.Close()
				return
			case <-time.After(refillEvery):
				_ = takeRoom(f) // the disk may be gone by now
			}
		}
	}()
	return func() error {
		close(stop)
		return errors.Join(<-stopped, remove())
	}, nil
}

const refillEvery = 50 * time.Millisecond

// takeRoom makes a file as large as the disk allows.
func takeRoom(f *os.File) error {
	for size := int64(64 << 20); size >= 4096; {
		end, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if err := syscall.Fallocate(int(f.Fd()), 0, end, size); errors.Is(err, syscall.ENOSPC) {
			size /= 4
		} else if err != nil {
			return err
		}
	}
	return nil
}

// isFull reports whether there is less room than a segment of a log takes.
func (d *disk) isFull() bool {
	var st syscall.Statfs_t
	return syscall.Statfs(d.mount, &st) == nil && st.Bavail*uint64(st.Bsize) < 16<<20
}

// freeze stops every write to the disk: writers hang in the kernel until it is taken back.
func (d *disk) freeze(within time.Duration) (thaw func() error, err error) {
	thaw, err = d.sup.register(undo{Argv: []string{"fsfreeze", "-u", d.mount}, Within: within.Seconds()})
	if err != nil {
		return nil, err
	}
	return thaw, namespaces.Run("fsfreeze", "-f", d.mount)
}

// hangs reports whether a write to the disk does not return.
func (d *disk) hangs() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "touch", filepath.Join(d.mount, "touched"))
	if err := cmd.Start(); err != nil {
		return false
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
		return false
	case <-ctx.Done():
		return true // it ends when the disk moves again
	}
}

// goneReadOnly makes the kernel find an error in the file system of a disk. The file system takes no more writes
// then, as when the device below answers nonsense. Only a new mount ends that.
func (d *disk) goneReadOnly() error {
	if err := namespaces.Run("mount", "-o", "remount,errors=remount-ro", d.mount); err != nil {
		return err
	}
	device, err := d.device()
	if err != nil {
		return err
	}
	if err := os.WriteFile(trigger(device), []byte("chaos"), 0o600); err != nil {
		return fmt.Errorf("read-only disk: %w", err)
	}
	if !d.isReadOnly() {
		return fmt.Errorf("%s still takes writes", d.mount)
	}
	return nil
}

func (d *disk) isReadOnly() bool {
	return errors.Is(os.WriteFile(filepath.Join(d.mount, "touched"), nil, 0o600), syscall.EROFS)
}

// trigger is where the kernel is told to find an error in the file system on a device.
func trigger(device string) string {
	return filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
}

// device is the loop device that a disk is mounted from.
func (d *disk) device() (string, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == d.mount && strings.HasPrefix(f[0], "/dev/loop") {
			return f[0], nil
		}
	}
	return "", fmt.Errorf("%s is on no loop device", d.mount)
}

// ext4Shutdown is EXT4_IOC_SHUTDOWN, noLogFlush its flag for a power loss: what the journal has not
// yet is gone.
const (
	ext4Shutdown = 0x8004587d
	noLogFlush   = 2
)

// losePower makes the disk forget what was not synced. Nothing can be written until it is attached
// again. The canary is a file without a sync.
func (d *disk) losePower() error {
	if err := os.WriteFile(d.canary(), []byte("not synced"), 0o644); err != nil {
		return err
	}
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer f.Close()
	flag := uint32(noLogFlush)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag)))
	if errno != 0 {
		return fmt.Errorf("power loss of %s: %w", d.mount, errno)
	}
	return nil
}

func (d *disk) canary() string { return filepath.Join(d.mount, "canary") }

// forgot reports whether the canary is gone.
func (d *disk) forgot() bool {
	text, err := os.ReadFile(d.canary())
	_ = os.Remove(d.canary())
	return err != nil || string(text) != "not synced"
}

// damage is what was done to a file, so that it can be taken back.
type damage struct {
	file          string
	kind          string
	before, after []byte
}

// damageOne changes a random file of a stopped node: a bit, a block, or its end.
func damageOne(dir string, r *rand.Rand) (*damage, error) {
	var files []string
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name := e.Name()
		// A development node's own CA and the file of its ports are not what is kept.
		if strings.Contains(p, "/tls/") || name == "ports.json" || name == "ballast" || name == "touched" {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			files = append(files, p)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("nothing to damage in %s: %w", dir, err)
	}
	d := &damage{file: files[r.IntN(len(files))]}
	if d.before, err = os.ReadFile(d.file); err != nil {
		return nil, err
	}
	// Reserved room behind the last entry is zero and nobody reads it: hit what is written.
	used := len(d.before)
	for used > 1 && d.before[used-1] == 0 {
		used--
	}
	d.after = append([]byte(nil), d.before...)
	at := r.IntN(used)
	switch r.IntN(3) {
	case 0:
		d.kind = fmt.Sprintf("bit %d of byte %d", at%8, at)
		d.after[at] ^= 1 << (at % 8)
	case 1:
		d.kind = fmt.Sprintf("a zeroed block at %d", at)
		clear(d.after[at:min(used, at+4096)])
	case 2:
		d.kind = fmt.Sprintf("an end at %d", at)
		d.after = d.after[:at]
	}
	return d, d.write(d.after)
}

func (d *damage) write(content []byte) error {
	f, err := os.OpenFile(d.file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// untouched reports whether the file still is as the damage left it.
func (d *damage) untouched() bool {
	now, err := os.ReadFile(d.file)
	return err == nil && string(now) == string(d.after)
}
