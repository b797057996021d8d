// Package cudatest builds, for tests, a stand-in for the CUDA driver library, and a program that
// calls it on demand and reports the time. It needs a C compiler, and skips the test if there is
// none.
//
// For tests only. It imports golang.org/x/sys/unix, internal/needtest and the standard library.
package cudatest

import (
	"bufio"
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
)

//go:embed testdata/*.c testdata/*.h
var sources embed.FS

// Built is a folder with the library and the program.
type Built struct {
	Dir     string
	Library string // Dir/libcuda.so.1, as the driver names it
	Program string // Dir/program
}

// Build compiles both into a folder that is removed when the test ends.
func Build(t testing.TB) Built {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"dispatched.h", "cuda.c", "memory.c", "program.c"} {
		source, err := sources.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), source, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := Built{Dir: dir, Library: filepath.Join(dir, "libcuda.so.1"), Program: filepath.Join(dir, "program")}
	// Functions begin with a push, as large ones do, which the kernel emulates. It would have to
	// single-step another first instruction: a second trap, slow on virtual machines.
	compile(t, "-shared", "-fPIC", "-fno-omit-frame-pointer", "-Wl,-soname,libcuda.so.1", "-o", b.Library, filepath.Join(dir, "cuda.c"), filepath.Join(dir, "memory.c"))
	compile(t, "-pthread", "-o", b.Program, filepath.Join(dir, "program.c"), "-ldl")
	return b
}

// Compile compiles a program of the test's own from its text, into a folder that is removed when the test ends.
func Compile(t testing.TB, source string) (program string) {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	compile(t, "-w", "-pthread", "-o", program, file)
	return program
}

// RecordName returns a guard's name that no other test uses at the same time: it names a folder of
// pinned maps.
func RecordName(t testing.TB) string {
	return "laxity-test-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ".", "-").Replace(t.Name())) + "-" + strconv.Itoa(os.Getpid())
}

func compile(t testing.TB, args ...string) {
	t.Helper()
	for _, compiler := range []string{"cc", "gcc", "clang"} {
		if _, err := exec.LookPath(compiler); err != nil {
			continue
		}
		out, err := exec.CommandContext(t.Context(), compiler, append([]string{"-O1", "-g0"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", compiler, err, out)
		}
		return
	}
	needtest.Compiler.Skip(t, "needs a C compiler (cc, gcc or clang)")
}

// Program is a running program that calls the library.
type Program struct {
	t      testing.TB
	PID    int // of the process started here; a container's is another one
	stdin  io.Writer
	stdout *bufio.Reader
}

// Start runs the program here.
func (b Built) Start(t testing.TB) *Program {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), b.Program, b.Library)
	cmd.Env = append(os.Environ(), "LAXITY_LEDGER="+b.Dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return Attach(t, cmd.Process.Pid, stdin, stdout)
}

// Attach controls a program that runs elsewhere, such as in a container.
func Attach(t testing.TB, pid int, stdin io.Writer, stdout io.Reader) *Program {
	return &Program{t: t, PID: pid, stdin: stdin, stdout: bufio.NewReader(stdout)}
}

// Called is one call, with the program's own wall clock before and after it.
type Called struct {
	Before, After time.Time
}

// Call calls a function of the library.
func (p *Program) Call(name string) Called { p.t.Helper(); return p.do("call " + name) }

// CallFor calls a function that waits.
func (p *Program) CallFor(name string, wait time.Duration) Called {
	p.t.Helper()
	return p.do(fmt.Sprintf("call %s %d", name, wait.Microseconds()))
}

// CallTimes calls a function so many times in a row.
func (p *Program) CallTimes(name string, times int) Called {
	p.t.Helper()
	return p.do(fmt.Sprintf("call %s 0 %d", name, times))
}

// CallInThread calls a function from a new thread, and waits for it.
func (p *Program) CallInThread(name string) Called { p.t.Helper(); return p.do("thread " + name) }

// Hold calls a synchronising function from a new thread; the call has begun when
// Hold returns, and waits for Release.
func (p *Program) Hold(name string) { p.t.Helper(); p.do("hold " + name) }

// Release lets the call that Hold made return, and waits for it.
func (p *Program) Release() Called { p.t.Helper(); return p.do("release") }

// Open loads the library, once.
func (p *Program) Open() Called { p.t.Helper(); return p.do("open") }

// Exec starts the program anew in the same process.
func (p *Program) Exec() {
	p.t.Helper()
	p.say("exec")
	p.do("open") // the answer of the new program
}

// Fork continues in a child, whose PID (in its own PID namespace) it returns.
func (p *Program) Fork() int {
	p.t.Helper()
	return int(p.do("fork").Before.UnixNano())
}

func (p *Program) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal("the program is gone:", err)
	}
}

func (p *Program) do(line string) Called {
	p.t.Helper()
	p.say(line)
	var name string
	var before, after int64
	p.answer(&name, &before, &after)
	return Called{time.Unix(0, before), time.Unix(0, after)}
}

// patience is how long the program may take to answer. A call that is held for ever must fail its
// test, not the run of all tests.
const patience = 5 * time.Minute

func (p *Program) answer(to ...any) {
	p.t.Helper()
	kill := time.AfterFunc(patience, func() {
		p.t.Logf("the program has not answered for %v, and is killed", patience)
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	})
	defer kill.Stop()
	answer, err := p.stdout.ReadString('\n')
	if err != nil {
		p.t.Fatal("the program is gone:", err)
	}
	if _, err := fmt.Sscan(answer, to...); err != nil {
		p.t.Fatalf("the program said %q: %v", answer, err)
	}
}
