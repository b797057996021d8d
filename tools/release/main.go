// Command release makes what is installed without Go: for each architecture an archive, a Debian
// and an RPM package and a list of parts (CycloneDX), and the checksums of them all. `make dist`
// runs it in the root of the repository. The same commit, Go and C compiler make the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// release is what one run makes.
type release struct {
	version string    // as git describe prints it: v1.2.3, v1.2.3-4-gabc1234, v2.0.0-rc1
	commit  string    // for --version
	time    time.Time // of every file in it: the commit's
	bin     string    // folder with programs that are built already; empty: build them
	out     string    // folder for the results
}

// programs are those that are installed.
var programs = []string{"laxity", "laxity-exporter", "laxity-actuator"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	set := flag.NewFlagSet("release", flag.ExitOnError)
	set.StringVar(&r.version, "version", "", "the version, as git describe prints it")
	set.StringVar(&r.commit, "commit", "", "the commit")
	epoch := set.Int64("epoch", 0, "the time of all files, in seconds since 1970: the commit's")
	archs := set.String("archs", runtime.GOARCH, "for which architectures, separated by commas: amd64, arm64")
	set.StringVar(&r.bin, "bin", "", "pack the programs in this folder, for one architecture; empty: build them")
	printVersion := set.Bool("print-version", false, "print the packages' version, and make nothing")
	set.StringVar(&r.out, "out", "dist", "the folder for the results")
	if err := set.Parse(args); err != nil {
		return err
	}
	version, err := packageVersion(r.version)
	if err != nil {
		return err
	}
	if *printVersion {
		fmt.Println(version)
		return nil
	}
	list := strings.Split(*archs, ",")
	if r.bin != "" && len(list) > 1 {
		return fmt.Errorf("--bin=%s holds programs for one architecture, not for %s", r.bin, *archs)
	}
	r.time = time.Unix(*epoch, 0).UTC()
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	// This machine's last: what was compiled for it stays where programs embed it.
	slices.SortStableFunc(list, func(a, b string) int {
		switch {
		case a == runtime.GOARCH:
			return 1
		case b == runtime.GOARCH:
			return -1
		}
		return 0
	})
	for _, arch := range list {
		if err := r.make(ctx, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return writeSums(r.out)
}

// make writes everything for one architecture into r.out.
func (r *release) make(ctx context.Context, arch string) error {
	bin := r.bin
	if bin == "" {
		tmp, err := os.MkdirTemp("", "laxity-release-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		bin = tmp
		if err := r.build(ctx, arch, bin); err != nil {
			return err
		}
	}
	if err := checkArch(bin, arch); err != nil {
		return err
	}
	bom, err := r.writeBOM(bin, arch)
	if err != nil {
		return err
	}
	if err := r.writeArchive(bin, arch, bom); err != nil {
		return err
	}
	return r.writePackages(bin, arch)
}

// file is the path of a result without a form of its own: laxity_1.2.3_linux_amd64.tar.gz.
func (r *release) file(arch, ending string) string {
	return filepath.Join(r.out, r.name(arch)+ending)
}

func (r *release) name(arch string) string {
	version, _ := packageVersion(r.version) // run checked it
	return "laxity_" + version + "_linux_" + arch
}
