package usage

import (
	"cmp"
	"fmt"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
)

// ended stops the parser when there is nothing left to parse.
type ended struct{ code int }

// Parse parses a command line. over: --help, --version or a completion was printed, and the program
// must end with code. Kingpin prints help again for each missing thing unless the process ends, so
// a panic stops the parser.
func Parse(app *kingpin.Application, args []string) (command string, over bool, code int, err error) {
	app.Terminate(func(code int) { panic(ended{code}) })
	defer func() {
		switch r := recover().(type) {
		case nil:
		case ended:
			over, code = true, r.code
		default:
			panic(r)
		}
	}()
	command, err = app.Parse(args)
	return command, false, 0, err
}

// Version is the output of --version: program, version, commit, Go and platform in one line. The
// build sets the version (make build), else it is "unversioned".
func Version(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)", program,
		cmp.Or(version.Version, "unversioned"), cmp.Or(version.GetRevision(), "unknown"), version.GoVersion, version.GoOS, version.GoArch)
}
