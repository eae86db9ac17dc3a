package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/check"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "the seed of TestSeed; 0 skips it")
	seedsFlag   = flag.String("seeds", "1-25", "the seeds of TestSeeds, as 7 or 1-25")
	minutesFlag = flag.Int("minutes", 2, "virtual minutes under faults")
	logsFlag    = flag.Bool("logs", false, "write the nodes' logs too")
	withFlag    = flag.String("with", "", "faults that every seed has, by name with commas between; members and upgrades are several")
	keepFlag    = flag.String("keep", "", "a directory for what is known of failed seeds")
)

// coverageMark begins the line by which a run tells its parent what it exercised.
const coverageMark = "coverage: "

// TestSeed is one run; TestSeeds starts it in a process of its own.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("no seed; TestSeeds runs seeds")
	}
	began := time.Now()
	dir := t.TempDir()
	left, err := bubble(t, func(t *testing.T) {
		cfg := configOf(*seedFlag, *minutesFlag)
		cfg.Dir, cfg.Log, cfg.Verbose = dir, os.Stdout, *logsFlag
		if err := cfg.with(*withFlag); err != nil {
			t.Fatal(err)
		}
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
		if t.Failed() && *keepFlag != "" {
			keep(t, r.History)
		}
		line, err := json.Marshal(r.Coverage)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", coverageMark, line)
		t.Logf("%d operations in %v", len(r.History.Ops), r.Virtual)
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%v; %d futures forgotten", time.Since(began), left)
}

func keep(t *testing.T, h *check.History) {
	f, err := os.Create(filepath.Join(*keepFlag, fmt.Sprintf("seed-%d.history", *seedFlag)))
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if err := h.Write(f); err != nil {
		t.Error(err)
	}
}

// TestSeeds runs a range of seeds, each in a process of its own on one processor: so chance comes from
// the seed as far as it can, and a panic of a library ends one run and no other.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		t.Skip("one seed only")
	}
	from, to, err := seedRange(*seedsFlag)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		to, *minutesFlag = min(to, from+24), 1
	}
	total, runs := check.Coverage{}, 0
	for seed := from; seed <= to; seed++ {
		out, err := runSeed(seed)
		if err != nil {
			t.Errorf("seed %d: %v; replay: make sim SEED=%d MINUTES=%d WITH='%s'\n%s", seed, err, seed, *minutesFlag,
				*withFlag, tail(out, 60))
			continue
		}
		runs++
		for name, n := range coverageOf(t, out) {
			total[name] += n
		}
	}
	t.Logf("%d runs of %d virtual minutes: %s", runs, *minutesFlag, list(total))
	const least = 6 // runs of which something can be expected
	if missing := enough(total, runs**minutesFlag); runs >= least && len(missing) > 0 {
		t.Errorf("too little happened to prove anything: %s", strings.Join(missing, ", "))
	}
}

func seedRange(text string) (from, to uint64, err error) {
	a, b, ok := strings.Cut(text, "-")
	if from, err = strconv.ParseUint(a, 10, 64); err != nil || !ok {
		return from, from, err
	}
	to, err = strconv.ParseUint(b, 10, 64)
	return from, to, err
}

// runLimit is the real time that one run may take; a bubble in which somebody waits for a lock that a
// sleeper holds stands still for ever.
const runLimit = 5 * time.Minute

func runSeed(seed uint64) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-test.run=^TestSeed$", "-test.v", "-test.timeout="+runLimit.String(),
		fmt.Sprintf("-seed=%d", seed), fmt.Sprintf("-minutes=%d", *minutesFlag), "-keep="+*keepFlag, "-with="+*withFlag,
		fmt.Sprintf("-logs=%t", *logsFlag))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=randseednop=0")
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC=400") // a run's heap is small, and a quarter of its time went into collecting it
	}
	out, err := cmd.CombinedOutput()
	if *keepFlag != "" && err != nil {
		name := filepath.Join(*keepFlag, fmt.Sprintf("seed-%d.log", seed))
		if werr := os.WriteFile(name, out, 0o600); werr != nil {
			return out, werr
		}
	}
	return out, err
}

func coverageOf(t *testing.T, out []byte) check.Coverage {
	t.Helper()
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line, ok := strings.CutPrefix(s.Text(), coverageMark); ok {
			c := check.Coverage{}
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Error(err)
			}
			return c
		}
	}
	return nil
}

// tail returns the last lines of an output, cut to a readable width.
func tail(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = l[:min(len(l), 600)]
	}
	return strings.Join(lines, "\n")
}
