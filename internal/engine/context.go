package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// contextSocket returns the address of the docker context in use, by DOCKER_CONTEXT or docker context use, where
// that is a socket of this machine, as a second engine has it; else "". The engine of a context on another
// machine is not asked: its containers use no GPU here.
//
// Source: docker/cli, cli/context/store: the metadata of a context lie in a folder named by the SHA-256 of its name.
func contextSocket() string {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil { // a .docker in the working directory may be anybody's
			return ""
		}
		dir = filepath.Join(home, ".docker")
	}
	var config struct{ CurrentContext string }
	var meta struct {
		Endpoints struct{ Docker struct{ Host string } }
	}
	readJSON(filepath.Join(dir, "config.json"), &config)
	name := cmp.Or(os.Getenv("DOCKER_CONTEXT"), config.CurrentContext)
	digest := sha256.Sum256([]byte(name))
	readJSON(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(digest[:]), "meta.json"), &meta)
	if host := meta.Endpoints.Docker.Host; strings.HasPrefix(host, "unix://") {
		return host
	}
	return ""
}

// readJSON leaves into as it is where the file cannot be read: then docker has no such context either.
func readJSON(path string, into any) {
	if raw, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(raw, into) // and says so itself
	}
}
