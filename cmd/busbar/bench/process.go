package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc: Linux has told user space 100 per second since 2.6.
const clockTick = 10 * time.Millisecond

// usage is what processes have used, as /proc counts it.
type usage struct {
	User, System  time.Duration
	Reads, Writes uint64 // system calls
	WriteBytes    uint64 // that reached the block layer
	Flushes       uint64 // of all disks of the machine, by whomever
	Switches      uint64 // context switches of the threads that still run
	Resident      uint64 // bytes of memory, at the moment
}

// readUsage adds up the processes.
func readUsage(pids []int) (usage, error) {
	var u usage
	if len(pids) == 0 {
		return u, nil
	}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return u, fmt.Errorf("process %d: %w", pid, err)
		}
		user, system, err := parseStat(stat)
		if err != nil {
			return u, fmt.Errorf("process %d: %w", pid, err)
		}
		u.User += user
		u.System += system
		u.Switches += readSwitches(dir)
		if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.Resident += parsePairs(status)["VmRSS"] << 10
		}
		// Another user's counters may be hidden: then they stay 0.
		if io, err := os.ReadFile(dir + "/io"); err == nil {
			values := parsePairs(io)
			u.Reads += values["syscr"]
			u.Writes += values["syscw"]
			u.WriteBytes += values["write_bytes"]
		}
	}
	if disks, err := os.ReadFile("/proc/diskstats"); err == nil {
		u.Flushes = parseFlushes(disks)
	}
	return u, nil
}

// parseStat reads user and system time of /proc/PID/stat. The second field, the command in
// parentheses, may hold anything.
func parseStat(b []byte) (user, system time.Duration, err error) {
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	const userAt, systemAt = 14 - 3, 15 - 3 // counted from 1; the first here is the third
	if end < 0 || len(fields) <= systemAt {
		return 0, 0, errors.New("stat is cut short")
	}
	u, err1 := strconv.ParseUint(fields[userAt], 10, 63)
	s, err2 := strconv.ParseUint(fields[systemAt], 10, 63)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	return time.Duration(u) * clockTick, time.Duration(s) * clockTick, nil
}

// readSwitches adds up what the threads of a process have switched, by themselves or not.
func readSwitches(dir string) (sum uint64) {
	threads, _ := filepath.Glob(dir + "/task/*/status") // the pattern is well-formed
	for _, file := range threads {
		if status, err := os.ReadFile(file); err == nil { // otherwise the thread has ended
			values := parsePairs(status)
			sum += values["voluntary_ctxt_switches"] + values["nonvoluntary_ctxt_switches"]
		}
	}
	return sum
}

// parsePairs reads lines of "name: number", with or without a unit.
func parsePairs(b []byte) map[string]uint64 {
	values := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		name, text, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64); err == nil {
			values[name] = n
		}
	}
	return values
}

// parseFlushes adds up the flush requests of whole disks: field 19 of a line since Linux 5.5.
// Device mappers and loops repeat what the disks below them count.
func parseFlushes(b []byte) uint64 {
	var sum uint64
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 19 || strings.HasPrefix(fields[2], "dm-") || strings.HasPrefix(fields[2], "loop") {
			continue
		}
		if n, err := strconv.ParseUint(fields[18], 10, 64); err == nil {
			sum += n
		}
	}
	return sum
}

func (u usage) since(o usage) usage {
	return usage{User: u.User - o.User, System: u.System - o.System, Reads: u.Reads - o.Reads,
		Writes: u.Writes - o.Writes, WriteBytes: u.WriteBytes - o.WriteBytes,
		Flushes: u.Flushes - o.Flushes, Switches: u.Switches - min(o.Switches, u.Switches), Resident: u.Resident}
}
