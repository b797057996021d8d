package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rootless is a user who runs Podman with a control group of version 2 that was handed over to
// them, as systemd does for each session.
type rootless struct {
	uid, gid int
	group    string // the folder of the control group
}

// NewRootless is New as an ordinary user, nobody, without ranges of further users. The service and
// its containers see control groups of version 2 only, also on a machine with both versions.
func NewRootless(ctx context.Context) (_ *Engine, err error) {
	e, err := prepare()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("no rootless Podman can be had here: %w", err), e.Close())
		}
	}()
	if e.user, err = nobody(filepath.Base(e.dir)); err != nil {
		return nil, err
	}
	for _, dir := range []string{"", "tmp", "net", "home", "user"} {
		path := filepath.Join(e.dir, dir)
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chown(path, e.user.uid, e.user.gid)); err != nil {
			return nil, err
		}
	}
	if err := os.Chown(e.config(), e.user.uid, e.user.gid); err != nil {
		return nil, err
	}
	if err := e.user.delegate(); err != nil {
		return nil, err
	}
	return e, e.Start(ctx)
}

func nobody(name string) (*rootless, error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	root, err := unified()
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &rootless{uid: uid, gid: gid, group: filepath.Join(root, name)}, errors.Join(err1, err2)
}

// unified returns where control groups of version 2 are mounted.
func unified() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("control groups of version 2 are not mounted")
}

// delegate makes the control group, with one below for the service: processes are in leaves only.
func (r *rootless) delegate() error {
	if err := os.MkdirAll(filepath.Join(r.group, "service"), 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.group, "cgroup.*"))
	if err != nil {
		return err
	}
	below, err := filepath.Glob(filepath.Join(r.group, "service", "cgroup.*"))
	if err != nil {
		return err
	}
	errs := []error{}
	for _, path := range append(append(files, below...), r.group, filepath.Join(r.group, "service")) {
		errs = append(errs, os.Chown(path, r.uid, r.gid))
	}
	return errors.Join(errs...)
}

// script puts itself into the user's control group, and runs the rest as that user, who sees
// version 2 only.
const script = `mount -t cgroup2 none /sys/fs/cgroup && echo $$ > /sys/fs/cgroup/"$1"/service/cgroup.procs || exit 1
shift; exec setpriv "$@"`

// wrap makes a command of podman one of the user's.
func (r *rootless) wrap(ctx context.Context, dir string, podman *exec.Cmd) *exec.Cmd {
	args := append([]string{"-c", script, "sh", filepath.Base(r.group), "--reuid=" + strconv.Itoa(r.uid), "--regid=" + strconv.Itoa(r.gid), "--clear-groups"}, podman.Args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(dir, "user"),
		"CONTAINERS_CONF=" + filepath.Join(dir, "containers.conf")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// leaveLimit is how long killed processes may take to leave their control group.
const leaveLimit = 30 * time.Second

// close ends all that is in the control group, frozen or not, and removes it.
func (r *rootless) close() error {
	_ = os.WriteFile(filepath.Join(r.group, "cgroup.kill"), []byte("1"), 0o600) // Linux ≥ 5.14
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := removeGroups(r.group)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Since(began) > leaveLimit {
			return err
		}
	}
}

// removeGroups removes a control group and those below it.
func removeGroups(dir string) error {
	below, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range below {
		if d.IsDir() {
			if err := removeGroups(filepath.Join(dir, d.Name())); err != nil {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}
